// What the bindings of all kernels share: addresses from Python, checks of what comes with them, and the way into a kernel
// without the interpreter lock.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "parallel.hpp"

namespace nb = nanobind;

namespace orthornn {

// Where an array lies; 0 for none. From Python: a contiguous tensor, whose data_ptr() it is, None, or the number itself.
struct Address {
    std::uintptr_t at = 0;
    explicit operator bool() const { return at != 0; }
};

}  // namespace orthornn

template <>
struct nb::detail::type_caster<orthornn::Address> {
    NB_TYPE_CASTER(orthornn::Address, const_name("torch.Tensor | int"))

    bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
        value.at = 0;
        if (source.is_none()) return true;
        static PyObject* const method = PyUnicode_InternFromString("data_ptr");
        PyObject* tensor = source.ptr();
        const object number = PyLong_Check(tensor)
                                  ? borrow(source)
                                  : steal(PyObject_VectorcallMethod(method, &tensor, 1, nullptr));  // in the stable ABI
        if (number.is_valid()) value.at = PyLong_AsSize_t(number.ptr());
        if (!PyErr_Occurred()) return true;
        PyErr_Clear();
        return false;
    }
};

namespace orthornn {
namespace {

[[noreturn]] inline void fail(const std::string& message) { throw nb::value_error(message.c_str()); }

constexpr i64 largest_size = i64(1) << 40;

inline void at_least(const char* what, i64 value, i64 low) {
    if (value < low || value > largest_size)
        fail(std::string("Expected ") + what + " of at least " + std::to_string(low) +
             (value < low ? "" : " and at most 2^40") + ", but got " + std::to_string(value) + ".");
}

inline void check_token(i64 token, i64 count, i64 row) {
    if (token < 0 || token >= count)
        throw nb::index_error(("Expected tokens in [0, " + std::to_string(count) + "), but got " + std::to_string(token) +
                               " in row " + std::to_string(row) + ".")
                                  .c_str());
}

// The array at an address: aligned to its numbers, which have `bytes` each, and there if it is needed.
inline void* array_at(const char* what, Address address, i64 bytes, bool needed) {
    if (address.at % static_cast<std::uintptr_t>(bytes))
        fail(std::string("Expected ") + what + " aligned to " + std::to_string(bytes) + " bytes.");
    if (!address && needed) fail(std::string("Expected ") + what + ", but got a null address.");
    return reinterpret_cast<void*>(address.at);
}

// Arrays of numbers of one size, in bytes.
struct Arrays {
    i64 element;

    explicit Arrays(i64 element_size) : element(element_size) {
        if (element != 4 && element != 8)
            fail("Expected an element size of 4 or 8, but got " + std::to_string(element) + ".");
    }
    void* needed(const char* what, Address address, i64 count) const { return array_at(what, address, element, count > 0); }
    void* optional(const char* what, Address address) const { return array_at(what, address, element, false); }
};

// The same for a call on sequences, with their checked sizes.
struct Sequences : Arrays {
    i64 T, B, N, R;
    std::vector<i64> lengths;
    Rows rows;

    Sequences(i64 element_size, i64 T_, i64 B_, i64 N_, i64 R_, Address batch_sizes, Address resets)
        : Arrays(element_size), T(T_), B(B_), N(N_), R(R_) {
        at_least("T", T, 0);
        at_least("B", B, 0);
        at_least("N", N, 1);
        at_least("R", R, 0);
        rows = {T,
                B,
                N,
                R,
                static_cast<const i64*>(array_at("batch_sizes", batch_sizes, 8, false)),
                nullptr,
                static_cast<const unsigned char*>(array_at("resets", resets, 1, false))};
        if (!rows.steps) {
            if (T > 0 && B > largest_size / T)
                fail("Expected T * B of at most 2^40, but got T = " + std::to_string(T) + " and B = " + std::to_string(B) +
                     ".");
            if (R != T * B)
                fail("Expected R to be T * B = " + std::to_string(T * B) + ", but got " + std::to_string(R) + ".");
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
        if (total != R)
            fail("Expected batch_sizes that add up to R = " + std::to_string(R) + ", but got " + std::to_string(total) +
                 ".");
        rows.lengths = lengths.data();
    }
};

inline Phi phi(const Sequences& given, int code, double slope, Address parameter) {
    if (code < 0 || code >= phi_count)
        fail("Expected an activation code from 0 to " + std::to_string(phi_count - 1) + ", but got " + std::to_string(code) +
             ".");
    const PhiKind& kind = phi_kinds[code];
    if (kind.pairs && kind.trained && given.N % 2)
        fail("Expected an even N for an activation with a parameter per pair, but got " + std::to_string(given.N) + ".");
    return {code, slope, array_at("parameter", parameter, given.element, kind.trained)};
}

inline void check_clip(double clip) {
    if (!(clip > 0)) fail("Expected a positive clip (infinity for none), but got " + std::to_string(clip) + ".");
}

// The interrupt that asks Python for signals, at most twenty times a second. Their handlers are Python code, which counts on
// denormal numbers also where the kernel that it interrupts does not: they run in the caller's mode.
struct Signals {
    using Clock = std::chrono::steady_clock;
    Interrupt interrupt{ask, this, 0};
    Clock::time_point asked = Clock::now();
    const std::uint64_t callers_mode = arithmetic_mode();

    static bool ask(void* data) {
        Signals& self = *static_cast<Signals*>(data);
        const Clock::time_point now = Clock::now();
        if (now - self.asked < std::chrono::milliseconds(50)) return false;
        self.asked = now;
        nb::gil_scoped_acquire lock;
        const std::uint64_t mode = arithmetic_mode();
        set_arithmetic_mode(self.callers_mode);
        const bool raised = PyErr_CheckSignals() != 0;
        set_arithmetic_mode(mode);
        return raised;
    }
};

template <class Call>
void execute(void (*operation)(const Call&), Call& call, int threads) {
    Signals signals;
    call.run = {threads < 1 ? 1 : threads, &signals.interrupt};
    {
        nb::gil_scoped_release unlocked;
        operation(call);
    }
    if (signals.interrupt.stop) throw nb::python_error();
}

// The name of an argument that is an address or None.
inline auto at(const char* name) { return nb::arg(name).none(); }

}  // namespace
}  // namespace orthornn
