// (I - U S U') h for one row at a time: U is held once, as panels of U' (M rows of a few vectors of units).
//
//     sums[m] += panel[m][:] o operand[panel]     for every panel: one vector of partial sums for each reflection
//     p[m] = the lanes of sums[m] added up;       q = S p (or S'p), stored
//     product[panel] = operand[panel] - sum_m q[m] panel[m][:]
//
// Every number of U is read twice a step from wherever it lies; NM numbers of 4 bytes fit the first cache level for
// (256, 32). No second, transposed copy of U competes for it.
#pragma once

#include "panels.hpp"

namespace orthornn::ORTHORNN_ISA {

constexpr int single_vectors = registers / 2;
constexpr int middle_vectors = registers / 8;

// c = init + or - sum_k a[k] b[k] in `chains` interleaved sums, so that short rows do not wait for one another.
template <class T, int vectors, int chains, bool subtract>
void chained(i64 depth, const T* a, const T* b, i64 b_step, const T* init, T* c) {
    using V = Vector<T>;
    constexpr int W = width<T>;
    V acc[chains][vectors];
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) {
        acc[0][v] = init ? load(init + v * W) : zero<T>();
#pragma GCC unroll 4
        for (int j = 1; j < chains; ++j) acc[j][v] = zero<T>();
    }
    i64 k = 0;
    for (; k + chains <= depth; k += chains) {
#pragma GCC unroll 4
        for (int j = 0; j < chains; ++j) {
            const V scalar = broadcast(a[k + j]);
#pragma GCC unroll 16
            for (int v = 0; v < vectors; ++v) {
                const V column = load_loose(b + v * W);
                acc[j][v] = subtract ? fnma(scalar, column, acc[j][v]) : fma(scalar, column, acc[j][v]);
            }
            b += b_step;
        }
    }
    for (; k < depth; ++k) {
        const V scalar = broadcast(a[k]);
#pragma GCC unroll 16
        for (int v = 0; v < vectors; ++v) {
            const V column = load_loose(b + v * W);
            acc[0][v] = subtract ? fnma(scalar, column, acc[0][v]) : fma(scalar, column, acc[0][v]);
        }
        b += b_step;
    }
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) {
#pragma GCC unroll 4
        for (int j = 1; j < chains; ++j) acc[0][v] += acc[j][v];
        store<T>(c + v * W, acc[0][v]);
    }
}

// sums[m] (+)= panel[m] o operand over the panel's vectors, for m < depth.
template <class T, int vectors, bool add>
void gather(i64 depth, const T* panel, const T* operand, T* sums) {
    using V = Vector<T>;
    constexpr int W = width<T>;
    V h[vectors];
#pragma GCC unroll 16
    for (int v = 0; v < vectors; ++v) h[v] = load(operand + v * W);
    for (i64 m = 0; m < depth; ++m) {
        V even = add ? load(sums + m * W) : zero<T>(), odd = zero<T>();
#pragma GCC unroll 16
        for (int v = 0; v < vectors; ++v) {
            const V u = load(panel + v * W);
            if (v % 2) odd = fma(u, h[v], odd);
            else even = fma(u, h[v], even);
        }
        store<T>(sums + m * W, even + odd);
        panel += vectors * W;
    }
}

// One halving: pairs of inputs, each shuffled by `low` and `high`, are added.
template <class T, int count>
ORTHORNN_INLINE void fold_pairs(Vector<T> (&x)[width<T>], Bits<T> low, Bits<T> high) {
#pragma GCC unroll 8
    for (int i = 0; i < count / 2; ++i)
        x[i] = __builtin_shuffle(x[2 * i], x[2 * i + 1], low) + __builtin_shuffle(x[2 * i], x[2 * i + 1], high);
}

// Within 128 bits: `run` sums of the first input, `run` of the second, alternately.
template <class T, int count, int run>
ORTHORNN_INLINE void fold_within(Vector<T> (&x)[width<T>]) {
    constexpr int W = width<T>, inner = 16 / static_cast<int>(sizeof(T));
    if constexpr (run < inner) {
        Bits<T> low{}, high{};
#pragma GCC unroll 16
        for (int i = 0; i < W; ++i) {
            const int j = i % inner, input = j / run % 2, group = j / (2 * run);
            low[i] = i - j + group * run + j % run + input * W;
            high[i] = low[i] + inner / 2;
        }
        fold_pairs<T, count>(x, low, high);
        fold_within<T, count / 2, 2 * run>(x);
    }
}

// Across: neighbouring 128-bit lanes of the first input, then those of the second.
template <class T, int count>
ORTHORNN_INLINE void fold_across(Vector<T> (&x)[width<T>]) {
    constexpr int W = width<T>, inner = 16 / static_cast<int>(sizeof(T)), lanes = vector_bytes / 16;
    if constexpr (count > 1) {
        Bits<T> low{}, high{};
#pragma GCC unroll 16
        for (int i = 0; i < W; ++i) {
            const int lane = i / inner, input = lane / (lanes / 2);
            low[i] = 2 * (lane % (lanes / 2)) * inner + i % inner + input * W;
            high[i] = low[i] + inner;
        }
        fold_pairs<T, count>(x, low, high);
        fold_across<T, count / 2>(x);
    }
}

// Lane i of the result is the sum of the lanes of vector i.
template <class T>
ORTHORNN_INLINE Vector<T> lane_sums(const T* in) {
    constexpr int W = width<T>;
    Vector<T> x[W];
#pragma GCC unroll 16
    for (int i = 0; i < W; ++i) x[i] = load(in + i * W);
    fold_within<T, W, 1>(x);
    fold_across<T, vector_bytes / 16>(x);
    return x[0];
}

template <class T>
using Chained = void (*)(i64, const T*, const T*, i64, const T*, T*);
template <class T>
using Gather = void (*)(i64, const T*, const T*, T*);

template <class T>
struct SingleTable {
    Chained<T> outward[single_vectors + 1], middle[middle_vectors + 1];
    Gather<T> first[single_vectors + 1], more[single_vectors + 1];
};

template <class T, int vectors = 1>
constexpr void fill_single(SingleTable<T>& table) {
    constexpr int room = single_vectors / vectors, chains = room >= 4 ? 4 : room >= 2 ? 2 : 1;
    table.outward[vectors] = chained<T, vectors, chains, true>;
    if constexpr (vectors <= middle_vectors) table.middle[vectors] = chained<T, vectors, 4, false>;
    table.first[vectors] = gather<T, vectors, false>;
    table.more[vectors] = gather<T, vectors, true>;
    if constexpr (vectors < single_vectors) fill_single<T, vectors + 1>(table);
}

template <class T>
constexpr SingleTable<T> make_single() {
    SingleTable<T> table{};
    fill_single<T>(table);
    return table;
}

template <class T>
inline constexpr SingleTable<T> singles = make_single<T>();

template <class T>
struct SingleStep {
    struct Shared {
        Panels<T> outward, middle;
        Layout columns;
        i64 M;
        void prepare(const Transition& w, const Layout& l, i64, bool transposed) {
            M = w.M;
            columns = layout<T>(M, false);
            const T* U = static_cast<const T*>(w.U);
            const T* S = static_cast<const T*>(w.S);
            outward.pack({U, 1, M, T(1)}, columns, l, 0, single_vectors);
            middle.pack(transposed ? Source<T>{S, M, 1, T(1)} : Source<T>{S, 1, M, T(1)}, columns, columns, 0,
                        middle_vectors);
        }
    };
    SingleStep(const Shared& s, i64)
        : shared(s), sums(s.columns.slots * width<T>), p(s.columns.slots), q(s.columns.slots) {}

    // `kept` receives h~ or C~, (rows, M).
    void advance(const T* operand, i64 stride, i64 rows, T* out, T* kept) {
        for (i64 i = 0; i < rows; ++i) one(operand + i * stride, out + i * stride, kept + i * shared.M);
    }

    void one(const T* operand, T* out, T* kept) {
        constexpr int W = width<T>;
        const Panels<T>& U = shared.outward;
        // The last panel first: in a trapezoid it alone meets every reflection, and so starts every sum.
        for (i64 panel = U.count; panel-- > 0;) {
            const i64 m0 = U.first[panel], m1 = U.last[panel], vectors = U.size(panel);
            const T* h = operand + U.begin(panel) * W;
            if (panel == U.count - 1) {
                clear(sums.data, m0 * W);
                clear(sums + m1 * W, (shared.columns.slots - m1) * W);
                singles<T>.first[vectors](m1 - m0, U.at(panel, m0), h, sums + m0 * W);
            } else {
                singles<T>.more[vectors](m1 - m0, U.at(panel, m0), h, sums + m0 * W);
            }
        }
        for (i64 m = 0; m < shared.columns.slots; m += W) store<T>(p + m, lane_sums<T>(sums + m * W));
        const Panels<T>& S = shared.middle;
        for (i64 panel = 0; panel < S.count; ++panel) {
            const i64 k = S.first[panel], vectors = S.size(panel);
            singles<T>.middle[vectors](S.last[panel] - k, p + k, S.at(panel, k), vectors * W, nullptr,
                                       q + S.begin(panel) * W);
        }
        copy(kept, q.data, shared.M);
        for (i64 panel = 0; panel < U.count; ++panel) {
            const i64 m0 = U.first[panel], vectors = U.size(panel), at = U.begin(panel) * W;
            singles<T>.outward[vectors](U.last[panel] - m0, q + m0, U.at(panel, m0), vectors * W, operand + at,
                                        out + at);
        }
    }
    const Shared& shared;
    Buffer<T> sums, p, q;
};

}  // namespace orthornn::ORTHORNN_ISA
