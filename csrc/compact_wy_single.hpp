// (I - U S U') h for one row at a time: U is held once, as panels of U' (M rows of a few vectors of units).
//
//     p[m] = the lanes of sums[m] added up;  q = S p (or S'p), stored
//     for each group of panels:
//         product[group] = operand[group] - sum_m q[m] panel[m][:];  the pass makes the next operand[group] of it
//         sums[m] += panel[m][:] o operand[group]          one vector of partial sums for each reflection
//
// A group is so small that its part of U stays in the first cache level between its two uses: U comes from the second
// level once a step, or, where all of it fits the first, not at all. No transposed copy of U competes for the cache.
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

// Which lanes of two vectors one halving takes to the left of its sum; the lanes on the right lie `distance` above.
// Within 128 bits: `run` sums of the first vector, `run` of the second, alternately.
template <class T, int run>
struct Within {
    static constexpr int inner = 16 / static_cast<int>(sizeof(T)), distance = inner / 2;
    static constexpr int at(int i) {
        const int j = i % inner, input = j / run % 2, group = j / (2 * run);
        return i - j + group * run + j % run + input * width<T>;
    }
};
// Across: neighbouring 128-bit lanes of the first vector, then those of the second.
template <class T>
struct Across {
    static constexpr int distance = 16 / static_cast<int>(sizeof(T)), half = maximum(vector_bytes / 32, 1);
    static constexpr int at(int i) {
        const int lane = i / distance;
        return 2 * (lane % half) * distance + i % distance + lane / half * width<T>;
    }
};
template <class Left>
struct Right {
    static constexpr int at(int i) { return Left::at(i) + Left::distance; }
};

// Adds up the lanes of `count` vectors, by halving how many there are.
template <class T, int count, int run = 1>
ORTHORNN_INLINE void fold(Vector<T> (&x)[width<T>]) {
    if constexpr (count > 1) {
        constexpr bool within = run < 16 / static_cast<int>(sizeof(T));
        using Left = typename Either<within, Within<T, run>, Across<T>>::Type;
#pragma GCC unroll 8
        for (int i = 0; i < count / 2; ++i)
            x[i] = shuffle<T, Left>(x[2 * i], x[2 * i + 1]) + shuffle<T, Right<Left>>(x[2 * i], x[2 * i + 1]);
        fold<T, count / 2, within ? 2 * run : run>(x);
    }
}

// Lane i of the result is the sum of the lanes of vector i.
template <class T>
ORTHORNN_INLINE Vector<T> lane_sums(const T* in) {
    constexpr int W = width<T>;
    Vector<T> x[W];
#pragma GCC unroll 16
    for (int i = 0; i < W; ++i) x[i] = load(in + i * W);
    fold<T, W>(x);
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
    static constexpr int W = width<T>;
    static constexpr bool row_by_row = true;

    struct Shared {
        Panels<T> outward, middle;
        Layout columns;
        i64 M, groups, panels, panels_in_group;  // panels of each region
        Buffer<i64> edges;                       // the slots of the groups in each region

        void prepare(const Transition& w, const Layout& l, i64, bool transposed) {
            M = w.M;
            columns = layout<T>(M, false);
            const T* U = static_cast<const T*>(w.U);
            const T* S = static_cast<const T*>(w.S);
            const i64 regions = l.paired ? 2 : 1, cache = static_cast<i64>(level1_bytes());
            const i64 vector = regions * M * vector_bytes;  // of U in one vector of units and its partners
            const bool fits = vector * l.vectors <= cache * 3 / 4;
            const i64 room = maximum<i64>(1, cache * 5 / 8 / maximum<i64>(1, vector));
            // Panels of one vector would spend more on the sums than they save.
            const bool in_groups = !fits && room > 1;
            const i64 width = in_groups ? minimum<i64>(single_vectors, room) : single_vectors;
            outward.pack({U, 1, M, T(1)}, columns, l, 0, width);
            middle.pack(transposed ? Source<T>{S, M, 1, T(1)} : Source<T>{S, 1, M, T(1)}, columns, columns, 0,
                        middle_vectors);
            panels = outward.count / regions;
            panels_in_group = in_groups ? maximum<i64>(1, room / width) : panels;
            groups = (panels + panels_in_group - 1) / panels_in_group;
            edges.reset(groups + 1);
            for (i64 g = 0; g < groups; ++g) edges[g] = outward.begin(first_panel(g)) * W;
            edges[groups] = l.offset;
        }
        i64 first_panel(i64 group) const { return group * panels_in_group; }
        i64 last_panel(i64 group) const { return minimum(panels, (group + 1) * panels_in_group); }
        // Steps go through the groups to and fro, so that the next step starts with what the cache still holds.
        i64 group(i64 t, i64 k) const { return t % 2 ? k : groups - 1 - k; }
        i64 begin(i64 group) const { return edges[group]; }
        i64 end(i64 group) const { return edges[group + 1]; }
    };
    SingleStep(const Shared& s, i64 rows)
        : shared(s), sums_row(s.columns.slots * W), count(rows), sums(rows * sums_row), p(s.columns.slots),
          q(rows * s.columns.slots) {}

    // The sums of a row that are to come back whenever its sequence restarts, in memory that is taken before.
    void expect_restarts() { restart_sums.reset(count * sums_row); }
    void remember(i64 row) {
        copy(restart_sums + row * sums_row, sums + row * sums_row, sums_row);
    }
    void recall(i64 row) { copy(sums + row * sums_row, restart_sums + row * sums_row, sums_row); }

    // sums += U'operand over a group; the first group of a step starts the sums.
    void collect(i64 row, i64 group, const T* operand, bool starts) {
        const Panels<T>& U = shared.outward;
        T* const own = sums + row * sums_row;
        for (i64 region = U.regions; region-- > 0;)
            for (i64 k = shared.last_panel(group); k-- > shared.first_panel(group);) {
                const i64 panel = region * shared.panels + k, m0 = U.first[panel], m1 = U.last[panel];
                const T* const h = operand + U.begin(panel) * W;
                if (starts) {
                    starts = false;
                    clear(own, m0 * W);
                    clear(own + m1 * W, (shared.columns.slots - m1) * W);
                    singles<T>.first[U.size(panel)](m1 - m0, U.at(panel, m0), h, own + m0 * W);
                } else {
                    singles<T>.more[U.size(panel)](m1 - m0, U.at(panel, m0), h, own + m0 * W);
                }
            }
    }
    // q and with it h~ or C~, (rows, M), into `kept`.
    void solve(const T*, i64, i64 rows, T* kept) {
        const Panels<T>& S = shared.middle;
        for (i64 row = 0; row < rows; ++row) {
            T* const own = q + row * shared.columns.slots;
            for (i64 m = 0; m < shared.columns.slots; m += W)
                store<T>(p + m, lane_sums<T>(sums + row * sums_row + m * W));
            for (i64 panel = 0; panel < S.count; ++panel) {
                const i64 k = S.first[panel], vectors = S.size(panel);
                singles<T>.middle[vectors](S.last[panel] - k, p + k, S.at(panel, k), vectors * W, nullptr,
                                           own + S.begin(panel) * W);
            }
            copy(kept + row * shared.M, own, shared.M);
        }
    }
    // out = operand - U q over a group.
    void spread(i64 row, i64 group, const T* operand, T* out) {
        const Panels<T>& U = shared.outward;
        for (i64 region = 0; region < U.regions; ++region)
            for (i64 k = shared.first_panel(group); k < shared.last_panel(group); ++k) {
                const i64 panel = region * shared.panels + k, m0 = U.first[panel], vectors = U.size(panel),
                          at = U.begin(panel) * W;
                singles<T>.outward[vectors](U.last[panel] - m0, q + row * shared.columns.slots + m0, U.at(panel, m0),
                                            vectors * W, operand + at, out + at);
            }
    }
    const Shared& shared;
    i64 sums_row, count;
    Buffer<T> sums, p, q, restart_sums;
};

}  // namespace orthornn::ORTHORNN_ISA
