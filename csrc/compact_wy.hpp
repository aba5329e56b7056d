// (I - U S U') h for a block of rows, forward; (I - U S'U') d backward.
//
//     p = operand U   (rows, M);   q = p S' or p S   (rows, M), stored;   product = operand - q U'   (rows, N)
//
// Three register-blocked products with packed U, S and -U'. Traffic a step: 2NM + M^2/2 numbers of the matrices for all
// rows of the block, mostly from the second cache level; rows from the first.
#pragma once

#include "panels.hpp"

namespace orthornn::ORTHORNN_ISA {

template <class T>
struct CompactStep {
    struct Shared {
        Panels<T> inward, middle, outward;
        Layout columns;
        i64 M;
        void prepare(const Transition& w, const Layout& l, i64 rows, bool transposed) {
            M = w.M;
            columns = layout<T>(M, false);
            const T* U = static_cast<const T*>(w.U);
            const T* S = static_cast<const T*>(w.S);
            inward.pack({U, M, 1, T(1)}, l, columns, rows);
            middle.pack(transposed ? Source<T>{S, M, 1, T(1)} : Source<T>{S, 1, M, T(1)}, columns, columns, rows);
            outward.pack({U, 1, M, T(-1)}, columns, l, rows);
        }
    };
    CompactStep(const Shared& s, i64 rows)
        : shared(s), stride(row_stride<T>(s.columns.slots)), p(rows * stride), q(rows * stride) {}

    // q and with it h~ or C~, (rows, M), into `kept`.
    void solve(const T* operand, i64 operand_stride, i64 rows, T* kept) {
        product(shared.inward, operand, operand_stride, rows, p.data, stride);
        product(shared.middle, p.data, stride, rows, q.data, stride);
        for (i64 i = 0; i < rows; ++i) copy(kept + i * shared.M, q + i * stride, shared.M);
    }
    void spread(const T* operand, i64 operand_stride, i64 rows, T* out) {
        product(shared.outward, q.data, stride, rows, out, operand_stride, operand, operand_stride);
    }
    static constexpr bool row_by_row = false;
    const Shared& shared;
    i64 stride;
    Buffer<T> p, q;
};

}  // namespace orthornn::ORTHORNN_ISA
