// tanh and atanh of a vector, within about two units in the last place.
//
// tanh x = -e / (2 + e) with e = expm1(-2|x|), relative accuracy kept down to the smallest x. expm1 splits its argument
// into n ln 2 + r, |r| <= ln 2 / 2, and e^r - 1 = r + r^2 q(r) with q near-minimax (interpolated at Chebyshev nodes).
// atanh t = k ln 2 / 2 + atanh s, where 2^k (1 - t) lies in [1, 2): |s| <= 1/3, and atanh s = s + s^3 p(s^2).
#pragma once

#include "vector.hpp"

namespace orthornn::ORTHORNN_ISA {

template <class T>
struct Constants;
template <>
struct Constants<float> {
    // Adding `magic` rounds to an integer and leaves n + 127 in the low bits.
    static constexpr float magic = 0x1.8000FEp23f, saturation = 9.1f;
    static constexpr float log2e = 0x1.715476p0f, ln2_high = 0x1.62E430p-1f, ln2_low = -0x1.05C610p-29f;
    static constexpr int mantissa = 23, bias = 127;
    static constexpr float expm1[] = {0.5f, 0.166665769896987757f, 0.0416665546172045742f, 0.00836317905272257737f,
                                      0.00139261835877134945f};
    static constexpr float atanh[] = {0.333333336619875047f, 0.199998525395043272f, 0.142962130373341316f,
                                      0.108527135364192831f, 0.116151278034481795f};
};
template <>
struct Constants<double> {
    static constexpr double magic = 0x1.80000000003FFp52, saturation = 19.1;
    static constexpr double log2e = 0x1.71547652B82FEp0, ln2_high = 0x1.62E42FEFA39EFp-1,
                            ln2_low = 0x1.ABC9E3B39803Fp-56;
    static constexpr int mantissa = 52, bias = 1023;
    static constexpr double expm1[] = {0.5, 0.16666666666666671, 0.0416666666666666698, 0.00833333333332613513,
                                       0.00138888888888837483, 0.000198412698748206253, 0.0000248015873255477412,
                                       2.75572554002064244e-6, 2.75572736431102953e-7, 2.51052170047207452e-8,
                                       2.09146869680868772e-9};
    static constexpr double atanh[] = {0.333333333333333333, 0.200000000000000078, 0.142857142857109361,
                                       0.111111111116713829, 0.0909090904258610037, 0.0769231014560856521,
                                       0.0666658795330405906, 0.0588400817683063817, 0.0524009354142341819,
                                       0.0497176202999123902, 0.0316407008698989508, 0.0762075315684592535};
};

template <class T, int terms>
ORTHORNN_INLINE Vector<T> polynomial(Vector<T> x, const T (&c)[terms]) {
    Vector<T> sum = broadcast<T>(c[terms - 1]);
#pragma GCC unroll 16
    for (int i = terms - 2; i >= 0; --i) sum = fma(sum, x, broadcast<T>(c[i]));
    return sum;
}

// a / b for b in [1, 2].
#if defined(__AVX512F__)
ORTHORNN_INLINE VF quotient(VF a, VF b) {
    VF r = (VF)_mm512_rcp14_ps((__m512)b);
    r = fma(r, fnma(b, r, broadcast(1.0f)), r);
    const VF q = a * r;
    return fma(r, fnma(b, q, a), q);
}
#else
ORTHORNN_INLINE VF quotient(VF a, VF b) { return a / b; }
#endif
ORTHORNN_INLINE VD quotient(VD a, VD b) { return a / b; }

template <class T>
ORTHORNN_INLINE Vector<T> hyperbolic_tangent(Vector<T> x) {
    using C = Constants<T>;
    using V = Vector<T>;
    const V magnitude = absolute(x), limit = broadcast<T>(C::saturation);
    const V y = (magnitude > limit ? limit : magnitude) * T(-2);  // a NaN stays
    const V n = fma(y, broadcast<T>(C::log2e), broadcast<T>(C::magic));
    const V whole = n - C::magic;
    V r = fnma(whole, broadcast<T>(C::ln2_high), y);
    r = fnma(whole, broadcast<T>(C::ln2_low), r);
    const V power = (V)((Bits<T>)n << C::mantissa);
    const V small = fma(r * r, polynomial<T>(r, C::expm1), r);
    const V e = fma(power, small, power - T(1));
    return flip_sign(quotient(zero<T>() - e, e + T(2)), x);  // +0 of +0, which -e would not be
}

// (atanh s - s) / s^3 from s^2 <= 1/9.
template <class T>
ORTHORNN_INLINE Vector<T> atanh_series(Vector<T> square) {
    return polynomial<T>(square, Constants<T>::atanh);
}

template <class T>
ORTHORNN_INLINE Vector<T> inverse_hyperbolic_tangent(Vector<T> x) {  // |x| < 1
    using C = Constants<T>;
    using V = Vector<T>;
    const V t = absolute(x), complement = T(1) - t;
    // Below 1/3 without k: the two terms of the sum would cancel.
    const Bits<T> exponent = t < T(1.0 / 3) ? Bits<T>{} : C::bias - ((Bits<T>)complement >> C::mantissa);
    const V power = (V)((exponent + C::bias) << C::mantissa);
    // 1 + t - 2^k (1 - t) = 2 t where k = 0: the numerator keeps small t exactly.
    const V scaled = power * complement;
    const V above = exponent == 0 ? t + t : (T(1) - scaled) + t;
    const V s = above / ((T(1) + t) + scaled);
    const V tail = fma(s * s * s, atanh_series<T>(s * s), s);
    const V k = __builtin_convertvector(exponent, V);
    return flip_sign(fma(k, broadcast<T>(C::ln2_high / 2), tail), x);
}

}  // namespace orthornn::ORTHORNN_ISA
