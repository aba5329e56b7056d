// R h for the block-diagonal R of a linear transition in its own basis, forward; R'd backward.
//
//     product[i] = c[i] h[i] + s[i] h[partner of i]      (the partner: the same place in the other half of the units)
//
// c and s come in float64. A coefficient rounded to float32 is off by up to 3e-8 in modulus and angle, every step in the
// same direction; so float keeps what is lost beside it, and only the rounding of the states is left, which has no
// direction. Traffic a step: eight vectors of coefficients from the nearest cache for any two vectors of units.
#pragma once

#include "panels.hpp"

namespace orthornn::ORTHORNN_ISA {

template <class T>
struct RotationStep {
    struct Shared {
        Layout layout;
        Buffer<T> c, s, c_low, s_low;

        void prepare(const Transition& w, const Layout& l, i64, bool transposed) {
            layout = l;
            const i64 half = l.n / 2;
            const double* const cosine = w.rotations;
            const double* const sine = cosine + l.n;
            c.reset(l.slots);
            s.reset(l.slots);
            c_low.reset(l.slots);
            s_low.reset(l.slots);
            const auto set = [&](i64 slot, double a, double b) {
                c[slot] = static_cast<T>(a);
                s[slot] = static_cast<T>(b);
                c_low[slot] = static_cast<T>(a - static_cast<double>(c[slot]));
                s_low[slot] = static_cast<T>(b - static_cast<double>(s[slot]));
            };
            for (i64 i = 0; i < half; ++i) {
                const i64 j = l.first + i;
                set(i, cosine[i], sine[transposed ? j : i]);
                set(l.offset + i, cosine[j], sine[transposed ? i : j]);
            }
            if (l.n % 2) set(half, cosine[half] + sine[half], 0);  // the middle unit is its own partner
        }
    };
    RotationStep(const Shared& s, i64) : shared(s) {}

    void solve(const T*, i64, i64, T*) {}
    void spread(const T* operand, i64 stride, i64 rows, T* out) {
        const i64 offset = shared.layout.offset;
        for (i64 r = 0; r < rows; ++r, operand += stride, out += stride) {
            for (i64 i = 0; i < offset; i += width<T>) {
                const Vector<T> a = load(operand + i), b = load(operand + offset + i);
                store<T>(out + i, turn(i, a, b));
                store<T>(out + offset + i, turn(offset + i, b, a));
            }
        }
    }
    static constexpr bool row_by_row = false;
    const Shared& shared;

private:
    ORTHORNN_INLINE Vector<T> turn(i64 i, Vector<T> own, Vector<T> partner) const {
        // The low parts first: half a unit of a sum that is rounded already would be lost, every time.
        Vector<T> sum = zero<T>();
        if constexpr (sizeof(T) == 4) sum = fma(load(shared.c_low + i), own, load(shared.s_low + i) * partner);
        return fma_once(load(shared.c + i), own, fma_once(load(shared.s + i), partner, sum));
    }
};

}  // namespace orthornn::ORTHORNN_ISA
