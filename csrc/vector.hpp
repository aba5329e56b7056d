// One vector register of one instruction set, for float and double.
//
// Every file that includes this one is compiled once per instruction set, inside the namespace ORTHORNN_ISA: a function
// compiled for AVX-512 must not be merged by the linker with its portable twin. For the same reason these files use no
// templates of the standard library.
#pragma once

#include <cstdint>
#include <cstring>

#if !defined(ORTHORNN_ISA)
#error "ORTHORNN_ISA names the namespace of the instruction set: portable, avx2 or avx512"
#endif
#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif

#define ORTHORNN_INLINE inline __attribute__((always_inline))

namespace orthornn::ORTHORNN_ISA {

using i64 = std::int64_t;

#if defined(__AVX512F__)
constexpr int vector_bytes = 64, registers = 32, rows_at_once = 14, panel_limit = 16;
#elif defined(__AVX2__)
constexpr int vector_bytes = 32, registers = 16, rows_at_once = 6, panel_limit = 12;
#else
constexpr int vector_bytes = 16, registers = 16, rows_at_once = 6, panel_limit = 12;
#endif

template <class T>
constexpr int width = vector_bytes / static_cast<int>(sizeof(T));

template <class T>
struct Types;
template <>
struct Types<float> {
    typedef float Vector __attribute__((vector_size(vector_bytes), may_alias));
    typedef float Loose __attribute__((vector_size(vector_bytes), may_alias, aligned(4)));
    typedef float Half __attribute__((vector_size(vector_bytes / 2), may_alias));
    typedef std::int32_t Bits __attribute__((vector_size(vector_bytes), may_alias));
    typedef std::int32_t Integer;
};
template <>
struct Types<double> {
    typedef double Vector __attribute__((vector_size(vector_bytes), may_alias));
    typedef double Loose __attribute__((vector_size(vector_bytes), may_alias, aligned(8)));
    typedef std::int64_t Bits __attribute__((vector_size(vector_bytes), may_alias));
    typedef std::int64_t Integer;
};
template <class T>
using Vector = typename Types<T>::Vector;
template <class T>
using Bits = typename Types<T>::Bits;

using VF = Vector<float>;
using VD = Vector<double>;

template <class T>
ORTHORNN_INLINE Vector<T> load(const T* p) {
    return *reinterpret_cast<const Vector<T>*>(p);
}
template <class T>
ORTHORNN_INLINE Vector<T> load_loose(const T* p) {
    return *reinterpret_cast<const typename Types<T>::Loose*>(p);
}
// As load, into a register: a compiler that may read the same numbers again for each multiply-add prefers that to a move.
template <class T>
ORTHORNN_INLINE Vector<T> load_once(const T* p) {
    Vector<T> v = load(p);
#if defined(__x86_64__)
    asm("" : "+v"(v));
#elif defined(__aarch64__)
    asm("" : "+w"(v));
#endif
    return v;
}
template <class T>
ORTHORNN_INLINE void store(T* p, Vector<T> v) {
    *reinterpret_cast<Vector<T>*>(p) = v;
}
template <class T>
ORTHORNN_INLINE void store_loose(T* p, Vector<T> v) {
    *reinterpret_cast<typename Types<T>::Loose*>(p) = v;
}
template <class T>
ORTHORNN_INLINE Vector<T> broadcast(T x) {
    return x - Vector<T>{};
}
template <class T>
ORTHORNN_INLINE Vector<T> zero() {
    return Vector<T>{};
}

// a * b + c and c - a * b with one rounding where the processor has it.
#if defined(__AVX512F__)
ORTHORNN_INLINE VF fma(VF a, VF b, VF c) { return (VF)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c); }
ORTHORNN_INLINE VD fma(VD a, VD b, VD c) { return (VD)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c); }
ORTHORNN_INLINE VF fnma(VF a, VF b, VF c) { return (VF)_mm512_fnmadd_ps((__m512)a, (__m512)b, (__m512)c); }
ORTHORNN_INLINE VD fnma(VD a, VD b, VD c) { return (VD)_mm512_fnmadd_pd((__m512d)a, (__m512d)b, (__m512d)c); }
ORTHORNN_INLINE VF square_root(VF a) { return (VF)_mm512_sqrt_ps((__m512)a); }
ORTHORNN_INLINE VD square_root(VD a) { return (VD)_mm512_sqrt_pd((__m512d)a); }
#elif defined(__AVX2__)
ORTHORNN_INLINE VF fma(VF a, VF b, VF c) { return (VF)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c); }
ORTHORNN_INLINE VD fma(VD a, VD b, VD c) { return (VD)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c); }
ORTHORNN_INLINE VF fnma(VF a, VF b, VF c) { return (VF)_mm256_fnmadd_ps((__m256)a, (__m256)b, (__m256)c); }
ORTHORNN_INLINE VD fnma(VD a, VD b, VD c) { return (VD)_mm256_fnmadd_pd((__m256d)a, (__m256d)b, (__m256d)c); }
ORTHORNN_INLINE VF square_root(VF a) { return (VF)_mm256_sqrt_ps((__m256)a); }
ORTHORNN_INLINE VD square_root(VD a) { return (VD)_mm256_sqrt_pd((__m256d)a); }
#else
#if defined(__aarch64__)
ORTHORNN_INLINE VF fma(VF a, VF b, VF c) { return (VF)vfmaq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
ORTHORNN_INLINE VD fma(VD a, VD b, VD c) { return (VD)vfmaq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b); }
ORTHORNN_INLINE VF fnma(VF a, VF b, VF c) { return (VF)vfmsq_f32((float32x4_t)c, (float32x4_t)a, (float32x4_t)b); }
ORTHORNN_INLINE VD fnma(VD a, VD b, VD c) { return (VD)vfmsq_f64((float64x2_t)c, (float64x2_t)a, (float64x2_t)b); }
#else
ORTHORNN_INLINE VF fma(VF a, VF b, VF c) { return a * b + c; }
ORTHORNN_INLINE VD fma(VD a, VD b, VD c) { return a * b + c; }
ORTHORNN_INLINE VF fnma(VF a, VF b, VF c) { return c - a * b; }
ORTHORNN_INLINE VD fnma(VD a, VD b, VD c) { return c - a * b; }
#endif
ORTHORNN_INLINE VF square_root(VF a) {
    for (int i = 0; i < width<float>; ++i) a[i] = __builtin_sqrtf(a[i]);
    return a;
}
ORTHORNN_INLINE VD square_root(VD a) {
    for (int i = 0; i < width<double>; ++i) a[i] = __builtin_sqrt(a[i]);
    return a;
}
#endif

// As many floats as a vector has doubles: to doubles, and rounded again.
using Half = typename Types<float>::Half;
#if defined(__AVX512F__)
ORTHORNN_INLINE VD widen(Half a) { return (VD)_mm512_cvtps_pd((__m256)a); }
ORTHORNN_INLINE Half narrow(VD a) { return (Half)_mm512_cvtpd_ps((__m512d)a); }
#elif defined(__AVX2__)
ORTHORNN_INLINE VD widen(Half a) { return (VD)_mm256_cvtps_pd((__m128)a); }
ORTHORNN_INLINE Half narrow(VD a) { return (Half)_mm256_cvtpd_ps((__m256d)a); }
#else
ORTHORNN_INLINE VD widen(Half a) { return __builtin_convertvector(a, VD); }
ORTHORNN_INLINE Half narrow(VD a) { return __builtin_convertvector(a, Half); }
#endif

// A vector of doubles from as many numbers; and to them, which returns what is there then.
ORTHORNN_INLINE VD load_double(const double* p) { return load(p); }
ORTHORNN_INLINE VD load_double(const float* p) { return widen(*reinterpret_cast<const Half*>(p)); }
ORTHORNN_INLINE VD store_double(double* p, VD v) {
    store<double>(p, v);
    return v;
}
ORTHORNN_INLINE VD store_double(float* p, VD v) {
    const Half rounded = narrow(v);
    *reinterpret_cast<Half*>(p) = rounded;
    return widen(rounded);
}

// a * b + c with one rounding on every processor: what is summed below the last bit of a product must not be lost.
#if defined(__AVX2__) || defined(__aarch64__)
template <class V>
ORTHORNN_INLINE V fma_once(V a, V b, V c) {
    return fma(a, b, c);
}
#else
ORTHORNN_INLINE VF fma_once(VF a, VF b, VF c) {
    typedef double Wide __attribute__((vector_size(2 * vector_bytes)));  // a float product is exact there
    return __builtin_convertvector(__builtin_convertvector(a, Wide) * __builtin_convertvector(b, Wide) +
                                       __builtin_convertvector(c, Wide), VF);
}
ORTHORNN_INLINE VD fma_once(VD a, VD b, VD c) { return fma(a, b, c); }  // its coefficients have no low parts
#endif

// The first `count` lanes; the others are zero and their memory is not touched.
#if defined(__AVX512F__)
ORTHORNN_INLINE VF load_part(const float* p, i64 count) {
    return (VF)_mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), p);
}
ORTHORNN_INLINE VD load_part(const double* p, i64 count) {
    return (VD)_mm512_maskz_loadu_pd(static_cast<__mmask8>((1u << count) - 1), p);
}
ORTHORNN_INLINE void store_part(float* p, VF v, i64 count) {
    _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1u << count) - 1), (__m512)v);
}
ORTHORNN_INLINE void store_part(double* p, VD v, i64 count) {
    _mm512_mask_storeu_pd(p, static_cast<__mmask8>((1u << count) - 1), (__m512d)v);
}
#else
#if defined(__AVX2__)
alignas(32) inline constexpr std::int32_t first_lanes[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
ORTHORNN_INLINE __m256i lanes_below(i64 count) {  // of four bytes
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(first_lanes + 8 - count));
}
ORTHORNN_INLINE VF load_part(const float* p, i64 count) { return (VF)_mm256_maskload_ps(p, lanes_below(count)); }
ORTHORNN_INLINE VD load_part(const double* p, i64 count) { return (VD)_mm256_maskload_pd(p, lanes_below(2 * count)); }
#else
template <class T>
ORTHORNN_INLINE Vector<T> load_part(const T* p, i64 count) {
    alignas(vector_bytes) T lanes[width<T>] = {};
    for (i64 i = 0; i < count; ++i) lanes[i] = p[i];
    return load(lanes);
}
#endif
template <class T>
ORTHORNN_INLINE void store_part(T* p, Vector<T> v, i64 count) {
    alignas(vector_bytes) T lanes[width<T>];
    store<T>(lanes, v);
    for (i64 i = 0; i < count; ++i) p[i] = lanes[i];
}
#endif

template <class T>
constexpr typename Types<T>::Integer sign_bit = static_cast<typename Types<T>::Integer>(1) << (8 * sizeof(T) - 1);

ORTHORNN_INLINE VF absolute(VF a) { return (VF)((Bits<float>)a & ~sign_bit<float>); }
ORTHORNN_INLINE VD absolute(VD a) { return (VD)((Bits<double>)a & ~sign_bit<double>); }
// a with its sign changed where that of s is negative.
ORTHORNN_INLINE VF flip_sign(VF a, VF s) { return (VF)((Bits<float>)a ^ ((Bits<float>)s & sign_bit<float>)); }
ORTHORNN_INLINE VD flip_sign(VD a, VD s) { return (VD)((Bits<double>)a ^ ((Bits<double>)s & sign_bit<double>)); }

template <class A>
constexpr ORTHORNN_INLINE A minimum(A a, A b) {
    return a < b ? a : b;
}
template <class A>
constexpr ORTHORNN_INLINE A maximum(A a, A b) {
    return a > b ? a : b;
}
constexpr i64 round_up(i64 a, i64 b) { return (a + b - 1) / b * b; }

template <bool first, class A, class B>
struct Either {
    using Type = A;
};
template <class A, class B>
struct Either<false, A, B> {
    using Type = B;
};

// Lane i of the result is lane Pattern::at(i) of a, or where that is beyond a, of b.
template <int... i>
struct Numbers {};
template <int count, int... i>
struct NumbersBelow : NumbersBelow<count - 1, count - 1, i...> {};
template <int... i>
struct NumbersBelow<0, i...> {
    using Type = Numbers<i...>;
};
template <class T, class Pattern, int... i>
ORTHORNN_INLINE Vector<T> shuffle_lanes(Vector<T> a, Vector<T> b, Numbers<i...>) {
#if __has_builtin(__builtin_shufflevector)
    return __builtin_shufflevector(a, b, Pattern::at(i)...);
#else  // GCC 11, which makes the same instructions of this
    constexpr int W = width<T>;
    return Vector<T>{(Pattern::at(i) < W ? a[Pattern::at(i) % W] : b[Pattern::at(i) % W])...};
#endif
}
template <class T, class Pattern>
ORTHORNN_INLINE Vector<T> shuffle(Vector<T> a, Vector<T> b) {
    return shuffle_lanes<T, Pattern>(a, b, typename NumbersBelow<width<T>>::Type{});
}

}  // namespace orthornn::ORTHORNN_ISA
