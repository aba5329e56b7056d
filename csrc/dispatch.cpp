#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "kernels.hpp"

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

const Table& table(Isa isa, int element_size) {
    const bool is_float = element_size == 4;
#if defined(__x86_64__)
    if (isa == Isa::avx512) return is_float ? avx512::table_float : avx512::table_double;
    if (isa == Isa::avx2) return is_float ? avx2::table_float : avx2::table_double;
#endif
    (void)isa;
    return is_float ? portable::table_float : portable::table_double;
}

}  // namespace orthornn
