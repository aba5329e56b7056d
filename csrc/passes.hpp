// What happens to one row between two products: input and phi forward, base and phi' backward.
//
// Forward, for every unit: z = product + x, h = phi(z), operand = B h; h (and z where phi' needs it) go to the caller's
// rows. Backward: g = grad + B'product, (delta, dL/dparameter) = phi'(g), delta clipped; delta to the caller's row.
// One reading of two or three rows and one writing of two.
#pragma once

#include "activations.hpp"
#include "layout.hpp"

namespace orthornn::ORTHORNN_ISA {

// What all rows share; vectors in slots.
template <class T>
struct PassShared {
    Layout layout;
    const T* parameter;  // zeros where phi has none
    const T* c;
    const T* s;
    T slope, clip;
};

template <class T>
struct ForwardPass {
    const T* product;  // slots
    const T* x0;       // first and second region
    const T* x1;
    T* states;   // caller's row
    T* saved;    // caller's row, read only by kinds that keep z
    T* operand;  // slots
};

template <class T>
struct BackwardPass {
    const T* product;  // slots
    const T* grad;     // caller's rows
    const T* saved;
    T* delta;
    T* operand;         // slots
    T* grad_parameter;  // slots, added to
};

template <class T>
using ForwardFunction = void (*)(const PassShared<T>&, const ForwardPass<T>&, i64 begin, i64 end);
template <class T>
using BackwardFunction = void (*)(const PassShared<T>&, const BackwardPass<T>&, i64 begin, i64 end);

// One vector of the caller's row: all of it, or `count` lanes.
template <bool part, class T>
ORTHORNN_INLINE Vector<T> read(const T* p, i64 count) {
    if constexpr (part) return load_part(p, count);
    else return load_loose(p);
}
template <bool part, class T>
ORTHORNN_INLINE void write(T* p, Vector<T> v, i64 count) {
    if constexpr (part) store_part(p, v, count);
    else store_loose<T>(p, v);
}

template <class T>
ORTHORNN_INLINE Bits<T> lanes_from(i64 count) {  // true in lanes >= count
    Bits<T> index;
    for (int i = 0; i < width<T>; ++i) index[i] = i;
    return index >= static_cast<typename Types<T>::Integer>(count);
}

template <class T, class Kind, bool paired, bool base>
struct Pass {
    using V = Vector<T>;
    static constexpr int W = width<T>;

    template <bool part>
    static ORTHORNN_INLINE void forward(const PassShared<T>& a, const ForwardPass<T>& r, i64 i, i64 n0, i64 n1) {
        const i64 offset = a.layout.offset, user = a.layout.first;
        V h0 = load(r.product + i) + read<part>(r.x0 + i, n0);
        V h1 = zero<T>();
        if constexpr (paired) h1 = load(r.product + offset + i) + read<part>(r.x1 + i, n1);
        if constexpr (Kind::keeps_z) {
            write<part, T>(r.saved + i, h0, n0);
            if constexpr (paired) write<part, T>(r.saved + user + i, h1, n1);
        }
        if constexpr (Kind::pairs) {
            const Bits<T> alone = part ? lanes_from<T>(n1) : Bits<T>{};
            Kind::forward(h0, h1, load(a.parameter + i), alone);
        } else {
            h0 = Kind::forward(h0, load(a.parameter + i), a.slope);
            if constexpr (paired) h1 = Kind::forward(h1, load(a.parameter + offset + i), a.slope);
        }
        write<part, T>(r.states + i, h0, n0);
        if constexpr (paired) write<part, T>(r.states + user + i, h1, n1);
        if constexpr (base) {
            const V c0 = load(a.c + i), s0 = load(a.s + i), c1 = load(a.c + offset + i), s1 = load(a.s + offset + i);
            store<T>(r.operand + i, fma(c0, h0, s0 * h1));
            store<T>(r.operand + offset + i, fma(c1, h1, s1 * h0));
        } else {
            store<T>(r.operand + i, h0);
            if constexpr (paired) store<T>(r.operand + offset + i, h1);
        }
    }

    template <bool part>
    static ORTHORNN_INLINE void backward(const PassShared<T>& a, const BackwardPass<T>& r, i64 i, i64 n0, i64 n1) {
        const i64 offset = a.layout.offset, user = a.layout.first;
        const V e0 = load(r.product + i);
        V g0 = read<part>(r.grad + i, n0), g1 = zero<T>();
        if constexpr (paired) {
            const V e1 = load(r.product + offset + i);
            g1 = read<part>(r.grad + user + i, n1);
            if constexpr (base) {
                const V c0 = load(a.c + i), s0 = load(a.s + i), c1 = load(a.c + offset + i),
                        s1 = load(a.s + offset + i);
                g0 += fma(c0, e0, s1 * e1);
                g1 += fma(c1, e1, s0 * e0);
            } else {
                g0 += e0;
                g1 += e1;
            }
        } else {
            g0 += e0;
        }
        const V h0 = read<part>(r.saved + i, n0);
        if constexpr (Kind::pairs) {
            const V h1 = read<part>(r.saved + user + i, n1);
            const Bits<T> alone = part ? lanes_from<T>(n1) : Bits<T>{};
            V dp = zero<T>();
            Kind::backward(g0, g1, h0, h1, load(a.parameter + i), dp, alone);
            if constexpr (Kind::trained) store<T>(r.grad_parameter + i, load(r.grad_parameter + i) + dp);
        } else {
            V dp = zero<T>();
            g0 = Kind::backward(g0, h0, load(a.parameter + i), a.slope, dp);
            if constexpr (Kind::trained) store<T>(r.grad_parameter + i, load(r.grad_parameter + i) + dp);
            if constexpr (paired) {
                const V h1 = read<part>(r.saved + user + i, n1);
                T* target = r.grad_parameter + offset + i;
                g1 = Kind::backward(g1, h1, load(a.parameter + offset + i), a.slope, dp);
                if constexpr (Kind::trained) store<T>(target, load(target) + dp);
            }
        }
        g0 = limited(g0, a.clip);
        write<part, T>(r.delta + i, g0, n0);
        store<T>(r.operand + i, g0);
        if constexpr (paired) {
            g1 = limited(g1, a.clip);
            write<part, T>(r.delta + user + i, g1, n1);
            store<T>(r.operand + offset + i, g1);
        }
    }

    static ORTHORNN_INLINE V limited(V g, T clip) {  // a NaN stays
        g = g > clip ? broadcast<T>(clip) : g;
        return g < -clip ? broadcast<T>(-clip) : g;
    }

    // Units [begin, end) of each region, in slots: whole vectors. The arguments are copied: what is stored might, for all the
    // compiler knows, lie where they do.
    static void forward_row(const PassShared<T>& shared, const ForwardPass<T>& pass, i64 begin, i64 end) {
        const PassShared<T> a = shared;
        const ForwardPass<T> r = pass;
        const i64 whole = minimum((paired ? a.layout.second : a.layout.first) / W * W, end);
        i64 i = begin;
        for (; i < whole; i += W) forward<false>(a, r, i, W, W);
        for (; i < end; i += W) forward<true>(a, r, i, lanes(a.layout.first - i), paired ? lanes(a.layout.second - i) : 0);
    }
    static void backward_row(const PassShared<T>& shared, const BackwardPass<T>& pass, i64 begin, i64 end) {
        const PassShared<T> a = shared;
        const BackwardPass<T> r = pass;
        const i64 whole = minimum((paired ? a.layout.second : a.layout.first) / W * W, end);
        i64 i = begin;
        for (; i < whole; i += W) backward<false>(a, r, i, W, W);
        for (; i < end; i += W) backward<true>(a, r, i, lanes(a.layout.first - i), paired ? lanes(a.layout.second - i) : 0);
    }
    static i64 lanes(i64 left) { return maximum<i64>(minimum<i64>(left, W), 0); }
};

template <class T>
struct PassFunctions {
    ForwardFunction<T> forward;
    BackwardFunction<T> backward;
    bool trained, pairs;
};

template <class T, class Kind>
PassFunctions<T> pass_of_kind(bool paired, bool base) {
    PassFunctions<T> f{nullptr, nullptr, Kind::trained, Kind::pairs};
    if (base) {
        f.forward = Pass<T, Kind, true, true>::forward_row;
        f.backward = Pass<T, Kind, true, true>::backward_row;
    } else if (paired || Kind::pairs) {
        f.forward = Pass<T, Kind, true, false>::forward_row;
        f.backward = Pass<T, Kind, true, false>::backward_row;
    } else if constexpr (!Kind::pairs) {
        f.forward = Pass<T, Kind, false, false>::forward_row;
        f.backward = Pass<T, Kind, false, false>::backward_row;
    }
    return f;
}

// Of the kind at place `wanted` in a list, the first of which has the code `code`.
template <class T, int code, class Kind, class... Others>
PassFunctions<T> pass_at(int wanted, bool paired, bool base) {
    constexpr PhiKind known = phi_kinds[code];
    static_assert(Kind::pairs == known.pairs && Kind::keeps_z == known.keeps_z && Kind::trained == known.trained,
                  "phi_kinds says something else of this activation");
    if constexpr (sizeof...(Others) > 0) {
        if (wanted != code) return pass_at<T, code + 1, Others...>(wanted, paired, base);
    } else {
        static_assert(code + 1 == phi_count, "phi_kinds has an activation without a kernel");
    }
    return pass_of_kind<T, Kind>(paired, base);
}

// In the order of phi_kinds.
template <class T>
PassFunctions<T> pass_functions(int code, bool paired, bool base) {
    return pass_at<T, 0, Identity<T>, Tanh<T>, ScaledTanh<T>, ReLU<T>, LeakyReLU<T>, PReLU<T>, ModReLU<T>, ComplexModReLU<T>,
                   OPLU<T>>(code, paired, base);
}

}  // namespace orthornn::ORTHORNN_ISA
