// What the bindings of the kernels with tables of their own share: checks of addresses, sizes and rows, and the way into a
// kernel without the interpreter lock. Included by one file per kernel.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "parallel.hpp"

namespace orthornn {
namespace {

namespace nb = nanobind;

using Number = std::uintptr_t;

[[noreturn]] inline void fail(const std::string& message) { throw nb::value_error(message.c_str()); }

inline void at_least(const char* what, i64 value, i64 low) {
    if (value < low || value > (i64(1) << 40))
        fail(std::string("Expected ") + what + " of at least " + std::to_string(low) + ", but got " + std::to_string(value) +
             ".");
}

inline void* memory(const char* what, Number address, i64 bytes, bool needed) {
    if (address % static_cast<Number>(bytes))
        fail(std::string("Expected ") + what + " aligned to " + std::to_string(bytes) + " bytes.");
    if (!address && needed) fail(std::string("Expected ") + what + ", but got a null address.");
    return reinterpret_cast<void*>(address);
}

// Sizes of a call with rows, checked.
struct Sizes {
    i64 element, T, B, N, R;
    std::vector<i64> lengths;
    Rows rows;

    Sizes(i64 element_size, i64 T_, i64 B_, i64 N_, i64 R_, Number batch_sizes)
        : element(element_size), T(T_), B(B_), N(N_), R(R_) {
        if (element != 4 && element != 8) fail("Expected an element size of 4 or 8, but got " + std::to_string(element) + ".");
        at_least("T", T, 0);
        at_least("B", B, 0);
        at_least("N", N, 1);
        at_least("R", R, 0);
        rows = {T, B, N, R, static_cast<const i64*>(memory("batch_sizes", batch_sizes, 8, false)), nullptr};
        if (!rows.steps) {
            if (R != T * B) fail("Expected R to be T * B = " + std::to_string(T * B) + ", but got " + std::to_string(R) + ".");
            return;
        }
        lengths.assign(static_cast<std::size_t>(B), T);
        i64 total = 0, before = B;
        for (i64 t = 0; t < T; ++t) {
            const i64 here = rows.steps[t];
            if (here < 1 || here > before || (t == 0 && here != B))
                fail("Expected batch_sizes that start with B, never grow and stay positive, but got " +
                     std::to_string(here) + " at step " + std::to_string(t) + ".");
            total += here;
            for (i64 b = here; b < before; ++b) lengths[static_cast<std::size_t>(b)] = t;
            before = here;
        }
        if (total != R) fail("Expected batch_sizes that add up to R = " + std::to_string(R) + ", but got " +
                             std::to_string(total) + ".");
        rows.lengths = lengths.data();
    }
    void* array(const char* what, Number address, bool needed = false) const {
        return memory(what, address, element, needed && R > 0);
    }
};

// Asks Python for signals, at most twenty times a second.
struct Asked {
    using Clock = std::chrono::steady_clock;
    Interrupt interrupt{ask, this, 0};
    Clock::time_point last = Clock::now();

    static bool ask(void* data) {
        Asked& self = *static_cast<Asked*>(data);
        const Clock::time_point now = Clock::now();
        if (now - self.last < std::chrono::milliseconds(50)) return false;
        self.last = now;
        nb::gil_scoped_acquire lock;
        return PyErr_CheckSignals() != 0;
    }
};

// The table for the instruction set in use and this size of numbers: of name##_float and name##_double.
#if defined(__x86_64__)
#define ORTHORNN_TABLE(name, element)                                                                    \
    (chosen() == Isa::avx512 ? ((element) == 4 ? avx512::name##_float : avx512::name##_double)           \
     : chosen() == Isa::avx2 ? ((element) == 4 ? avx2::name##_float : avx2::name##_double)               \
                             : ((element) == 4 ? portable::name##_float : portable::name##_double))
#else
#define ORTHORNN_TABLE(name, element) ((element) == 4 ? portable::name##_float : portable::name##_double)
#endif

template <class Call>
void execute(void (*operation)(const Call&), Call& call, int threads) {
    Asked asked;
    call.run = {threads < 1 ? 1 : threads, &asked.interrupt};
    {
        nb::gil_scoped_release unlocked;
        operation(call);
    }
    if (asked.interrupt.stop) throw nb::python_error();
}

}  // namespace
}  // namespace orthornn
