// The nine activations of src/orthornn/activations.py (same codes, formulas and choices where there is no derivative)
// on vectors.
//
// A kind acts on single units (`pairs == false`: forward(z, p), backward(g, saved, p, dp)) or on the two halves of the
// state together (`pairs == true`; `alone` marks lanes of the first half without a partner). `keeps_z` says that the
// backward pass reads the pre-activation instead of the state. p is the parameter, dp receives dL/dparameter where a kind
// is `trained`.
#pragma once

#include "math.hpp"

namespace orthornn::ORTHORNN_ISA {

template <class T>
struct Identity {
    using V = Vector<T>;
    static constexpr bool pairs = false, keeps_z = false, trained = false;
    static ORTHORNN_INLINE V forward(V z, V, T) { return z; }
    static ORTHORNN_INLINE V backward(V g, V, V, T, V&) { return g; }
};

template <class T>
struct Tanh {
    using V = Vector<T>;
    static constexpr bool pairs = false, keeps_z = false, trained = false;
    static ORTHORNN_INLINE V forward(V z, V, T) { return hyperbolic_tangent<T>(z); }
    static ORTHORNN_INLINE V backward(V g, V h, V, T, V&) { return g * fnma(h, h, broadcast<T>(1)); }
};

template <class T>
struct ScaledTanh {
    using V = Vector<T>;
    static constexpr bool pairs = false, keeps_z = false, trained = true;
    static ORTHORNN_INLINE V forward(V z, V c, T) {
        const V divisor = c == T(0) ? broadcast<T>(1) : c;
        const V h = hyperbolic_tangent<T>(c * z) / divisor;
        return c == T(0) ? z : h;
    }
    static ORTHORNN_INLINE V backward(V g, V h, V c, T, V& dc) {
        const V t = c * h, slope = fnma(t, t, broadcast<T>(1));
        const V inside = absolute(t) >= T(1) ? zero<T>() : t;
        const V divisor = c == T(0) ? broadcast<T>(1) : c;
        const V z = inverse_hyperbolic_tangent<T>(inside) / divisor;
        // (z slope - h) / c cancels for small t; with atanh t = t + t^3 p(t^2) it is -t h^2 (1 - slope p(t^2)).
        const V small = -t * h * h * fnma(slope, atanh_series<T>(t * t), broadcast<T>(1));
        dc = g * (absolute(t) < T(1.0 / 3) ? small : (z * slope - h) / divisor);
        return g * slope;
    }
};

template <class T>
struct ReLU {
    using V = Vector<T>;
    static constexpr bool pairs = false, keeps_z = false, trained = false;
    static ORTHORNN_INLINE V forward(V z, V, T) { return z < T(0) ? zero<T>() : z; }  // a NaN stays
    static ORTHORNN_INLINE V backward(V g, V h, V, T, V&) { return h <= T(0) ? zero<T>() : g; }
};

template <class T>
struct LeakyReLU {
    using V = Vector<T>;
    static constexpr bool pairs = false, keeps_z = false, trained = false;
    static ORTHORNN_INLINE V forward(V z, V, T slope) { return z > T(0) ? z : z * slope; }
    static ORTHORNN_INLINE V backward(V g, V h, V, T slope, V&) { return h > T(0) ? g : g * slope; }
};

template <class T>
struct PReLU {
    using V = Vector<T>;
    static constexpr bool pairs = false, keeps_z = true, trained = true;
    static ORTHORNN_INLINE V forward(V z, V a, T) { return z > T(0) ? z : z * a; }
    static ORTHORNN_INLINE V backward(V g, V z, V a, T, V& da) {
        da = z > T(0) ? zero<T>() : g * z;
        return z > T(0) ? g : g * a;
    }
};

template <class T>
struct ModReLU {
    using V = Vector<T>;
    static constexpr bool pairs = false, keeps_z = false, trained = true;
    static ORTHORNN_INLINE V forward(V z, V b, T) {
        const V size = absolute(z) + b;
        const V h = flip_sign(size < T(0) ? zero<T>() : size, z);
        return z == T(0) ? zero<T>() : h;
    }
    static ORTHORNN_INLINE V backward(V g, V h, V, T, V& db) {
        const V by_z = h != T(0) ? g : zero<T>();
        db = flip_sign(by_z, h);
        return by_z;
    }
};

template <class T>
struct ComplexModReLU {
    using V = Vector<T>;
    using M = Bits<T>;
    static constexpr bool pairs = true, keeps_z = true, trained = true;
    // |z| with the larger part taken out, so that no square leaves the range; 1 in place of 0, and NaN for NaN.
    static ORTHORNN_INLINE V modulus(V x, V y) {
        const V a = absolute(x), b = absolute(y);
        const V large = a > b ? a : b, small = a > b ? b : a;
        const V ratio = small / (large == T(0) ? broadcast<T>(1) : large);
        const V r = large * square_root(fma(ratio, ratio, broadcast<T>(1)));
        return large == T(0) ? broadcast<T>(1) + small : r;
    }
    // Also where r or b is NaN, which is not lost.
    static ORTHORNN_INLINE M active(V x, V y, V r, V b) { return ((x != T(0)) | (y != T(0))) & ~(r + b <= T(0)); }
    static ORTHORNN_INLINE void forward(V& x, V& y, V b, M) {
        const V r = modulus(x, y), scale = (r + b) / r;
        const M on = active(x, y, r, b);
        x = on ? scale * x : zero<T>();
        y = on ? scale * y : zero<T>();
    }
    static ORTHORNN_INLINE void backward(V& g, V& f, V x, V y, V b, V& db, M) {
        const V r = modulus(x, y), scale = (r + b) / r, u = x / r, v = y / r;
        const M on = active(x, y, r, b);
        const V along = on ? fma(u, g, v * f) : zero<T>();
        const V shrink = b * along / r;
        g = on ? scale * g - shrink * u : zero<T>();
        f = on ? scale * f - shrink * v : zero<T>();
        db = along;
    }
};

template <class T>
struct OPLU {
    using V = Vector<T>;
    using M = Bits<T>;
    static constexpr bool pairs = true, keeps_z = true, trained = false;
    static ORTHORNN_INLINE void forward(V& x, V& y, V, M alone) {
        const M keep = (x >= y) | alone;
        const V first = keep ? x : y;
        y = keep ? y : x;
        x = first;
    }
    static ORTHORNN_INLINE void backward(V& g, V& f, V x, V y, V, V&, M alone) {
        const M keep = (x >= y) | alone;
        const V first = keep ? g : f;
        f = keep ? f : g;
        g = first;
    }
};

}  // namespace orthornn::ORTHORNN_ISA
