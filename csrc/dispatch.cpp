#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "delta_call.hpp"
#include "irregular_call.hpp"
#include "kernels.hpp"
#include "reflections_call.hpp"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace orthornn {
namespace {

#if defined(__x86_64__)
// Which register states the operating system saves: bits 1-2 for AVX, 5-7 for AVX-512 besides.
unsigned saved_states() {
    unsigned low, high;
    asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    return low;
}

Isa best() {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d)) return Isa::portable;
    const bool fma = c >> 12 & 1, osxsave = c >> 27 & 1, avx = c >> 28 & 1;
    if (!fma || !osxsave || !avx) return Isa::portable;
    const unsigned states = saved_states();
    if ((states & 0x6) != 0x6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return Isa::portable;
    const bool avx2 = b >> 5 & 1;
    const bool avx512 = (b >> 16 & 1) && (b >> 17 & 1) && (b >> 30 & 1) && (b >> 31 & 1);  // F, DQ, BW, VL
    if (!avx2) return Isa::portable;
    return avx512 && (states & 0xE6) == 0xE6 ? Isa::avx512 : Isa::avx2;
}
#else
Isa best() { return Isa::portable; }
#endif

}  // namespace

const char* name(Isa isa) {
    static const char* const names[] = {"portable", "avx2", "avx512"};
    return names[static_cast<int>(isa)];
}

bool built(Isa isa) {
#if defined(__x86_64__)
    (void)isa;
    return true;
#else
    return isa == Isa::portable;
#endif
}

bool supported(Isa isa) {
    static const Isa found = best();
    return built(isa) && static_cast<int>(isa) <= static_cast<int>(found);
}

Isa chosen() {
    const Isa all[] = {Isa::avx512, Isa::avx2, Isa::portable};
    const char* wanted = std::getenv("ORTHORNN_ISA");
    if (!wanted || !*wanted) {
        for (Isa isa : all)
            if (supported(isa)) return isa;
    }
    for (Isa isa : all) {
        if (std::strcmp(wanted, name(isa)) != 0) continue;
        if (supported(isa)) return isa;
        throw std::runtime_error(std::string("Expected ORTHORNN_ISA to be what this processor and build have, but got '") +
                                 wanted + "'. Unset it to take the best that there is.");
    }
    throw std::runtime_error(std::string("Expected ORTHORNN_ISA to be portable, avx2 or avx512, but got '") + wanted +
                             "'. Unset it to take the best that there is.");
}

// Of every instruction set, in the order of Isa, the tables `name`_float and `name`_double.
#if defined(__x86_64__)
#define ORTHORNN_TABLES(name)                                                                                            \
    &portable::name##_float, &portable::name##_double, &avx2::name##_float, &avx2::name##_double, &avx512::name##_float, \
        &avx512::name##_double
#else
#define ORTHORNN_TABLES(name) &portable::name##_float, &portable::name##_double
#endif

namespace {

template <class Each, std::size_t count>
const Each& of(const Each* const (&all)[count], Isa isa, i64 element_size) {
    return *all[2 * static_cast<int>(isa) + (element_size == 8)];
}

}  // namespace

const Table& table(Isa isa, i64 element_size) {
    static const Table* const all[] = {ORTHORNN_TABLES(table)};
    return of(all, isa, element_size);
}

const ReflectionTable& reflections_table(Isa isa, i64 element_size) {
    static const ReflectionTable* const all[] = {ORTHORNN_TABLES(reflections)};
    return of(all, isa, element_size);
}

const DeltaTable& delta_table(Isa isa, i64 element_size) {
    static const DeltaTable* const all[] = {ORTHORNN_TABLES(delta)};
    return of(all, isa, element_size);
}

const IrregularTable& irregular_table(Isa isa, i64 element_size) {
    static const IrregularTable* const all[] = {ORTHORNN_TABLES(irregular)};
    return of(all, isa, element_size);
}

}  // namespace orthornn
