// W h for dense W, forward and backward.
//
//     for each panel of W' (a few vectors of outputs; K x panel, contiguous):
//         for each few rows of the block:  product[rows, panel] = operand[rows, :] panel
//
// Traffic a step: W once from the level that holds it, for all rows of the block; the rows themselves from the nearest
// cache. One row takes a wide panel (all accumulators in one row), many rows a narrow one.
#pragma once

#include "panels.hpp"

namespace orthornn::ORTHORNN_ISA {

template <class T>
struct DenseStep {
    struct Shared {
        Panels<T> panels;
        void prepare(const Transition& w, const Layout& l, i64 rows, bool transposed) {
            const T* W = static_cast<const T*>(w.W);
            // Forward a[i] = sum_k W[i, k] h[k]; backward W'delta.
            const Source<T> source = transposed ? Source<T>{W, l.n, 1, T(1)} : Source<T>{W, 1, l.n, T(1)};
            panels.pack(source, l, l, rows);
        }
    };
    DenseStep(const Shared& s, i64) : shared(s) {}

    void solve(const T*, i64, i64, T*) {}
    void spread(const T* operand, i64 stride, i64 rows, T* out) {
        product(shared.panels, operand, stride, rows, out, stride);
    }
    static constexpr bool row_by_row = false;
    const Shared& shared;
};

}  // namespace orthornn::ORTHORNN_ISA
