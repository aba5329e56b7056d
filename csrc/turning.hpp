// sin and cos, and exp of a negative number, of a vector of double, each within about two units in the last place of 1.
//
// x = k pi / 2 + r, |r| <= pi / 4; k mod 4 says which of +-sin r and +-cos r are meant. pi / 2 is the sum of three numbers,
// of which the first two have 33 bits, so that k times them is exact for |k| < 2^20. The series in r^2 are near-minimax
// (interpolated at Chebyshev nodes). exp(-y) = 2^n e^r as in math.hpp.
#pragma once

#include "math.hpp"

namespace orthornn::ORTHORNN_ISA {

constexpr double largest_angle = 0x1p20;  // beyond it the C library reduces the angle

struct TurnConstants {
    static constexpr double magic = 0x1.8p52, two_over_pi = 0x1.45f306dc9c883p-1;
    static constexpr double high = 0x1.921fb544p0, middle = 0x1.0b4611a6p-34, low = 0x1.3198a2e037073p-69;
    static constexpr double sine[] = {-0.16666666666666666,   0.008333333333333331,    -0.0001984126984126506,
                                      2.7557319219335453e-06, -2.5052106231157904e-08, 1.605853141458901e-10,
                                      -7.586685070091267e-13};
    static constexpr double cosine[] = {0.041666666666666664,   -0.0013888888888888887, 2.4801587301584645e-05,
                                        -2.755731922140076e-07, 2.0876755790363397e-09, -1.1470460773969325e-11,
                                        4.7458652037874553e-14};
    static constexpr double longest = 708;  // exp(-708) is the last that is no denormal number
    static constexpr double ln2_high = 0x1.62e42fep-1, ln2_low = 0x1.f473de6af278fp-30;  // the first has 28 bits
};

ORTHORNN_INLINE void sine_and_cosine(VD x, VD& sine, VD& cosine) {
    using C = TurnConstants;
    const VD n = fma(x, broadcast(C::two_over_pi), broadcast(C::magic));
    const VD k = n - C::magic;
    VD r = fnma(k, broadcast(C::high), x);
    r = fnma(k, broadcast(C::middle), r);
    r = fnma(k, broadcast(C::low), r);
    const VD square = r * r;
    const VD s = fma(square * r, polynomial<double>(square, C::sine), r);
    const VD c = fma(square * square, polynomial<double>(square, C::cosine), fma(square, broadcast(-0.5), broadcast(1.0)));
    const Bits<double> quadrant = (Bits<double>)n;
    const auto odd = (quadrant & 1) != 0;
    sine = flip_sign(odd ? c : s, (VD)(quadrant << 62));
    cosine = flip_sign(odd ? s : c, (VD)((quadrant + 1) << 62));
}

// exp(-y), y >= 0; 0 to a denormal number's size where y is above 708.
ORTHORNN_INLINE VD decayed(VD y) {
    using C = Constants<double>;
    const VD limit = broadcast(TurnConstants::longest);
    y = zero<double>() - (y > limit ? limit : y);  // a NaN stays
    const VD n = fma(y, broadcast(C::log2e), broadcast(C::magic));
    const VD whole = n - C::magic;
    VD r = fnma(whole, broadcast(TurnConstants::ln2_high), y);
    r = fnma(whole, broadcast(TurnConstants::ln2_low), r);
    const VD power = (VD)((Bits<double>)n << C::mantissa);
    return fma(power, fma(r * r, polynomial<double>(r, C::expm1), r), power);
}

}  // namespace orthornn::ORTHORNN_ISA
