// The delta rule by products over short chunks of updates, in the compact WY form with its UT transform; see "Products" in
// ../docs/derivations/delta_rule.md for the formulas, whose names these are.
//
//     forward    [p; o] = Q S,  then row by row  p_j -= sum_i< L_ji alpha_i,  alpha_j = tau_j p_j - b_j v_j,
//                o -= P alpha,  S = a o S - E alpha
//     backward   y = -E'G - P'do,  then row by row upwards  y_i -= sum_j> L_ji x_j,  x_j = tau_j y_j,
//                G = a o G + Q'[x; do],  and sums over columns: S [x; do]', -G alpha', -[x; do] alpha'
//
// One sequence and head and one block of columns at a time, so that the block's K x 16 numbers (AVX2) stay in the first cache
// level and each is read once for a chunk of updates, in register blocks. A chunk ends where an episode does.
//
// Exactness is that of delta.hpp: L and the two solves are in double, with the rounded alpha and x, so that a chunk whose
// keys come again errs in no direction.
//
// What is not finite. Rows of a solve depend on earlier ones alone, so the first row that is not finite is where the block of
// columns is lost. Steps before it are read from products without the rows from there on; the others are done one by one.
#pragma once

#include "delta.hpp"

namespace orthornn::ORTHORNN_ISA {

constexpr i64 delta_chunk = 16;  // updates
constexpr i64 short_chunk = 8;   // updates of which products take longer than one after the other

// c = init + a b for `rows` rows and columns of whole vectors.
template <class T>
void delta_product(i64 rows, i64 columns, const TileArguments<T>& t) {
    constexpr i64 wide = columns_at_once(rows_at_once) * width<T>;
    const Split split(rows, rows_at_once);
    TileArguments<T> own = t;
    for (i64 j = 0; j < columns; j += wide) {
        const i64 vectors = minimum(wide, columns - j) / width<T>;
        own.b = t.b + j;
        for (i64 part = 0; part < split.parts; ++part) {
            const i64 i = split.begin(part);
            own.a = t.a + i * t.a_row;
            own.c = t.c + i * t.c_row + j;
            if (t.init) own.init = t.init + i * t.init_row + j;
            tiles<T>.at[split.size(part)][vectors](own);
        }
    }
}

// The product of two rows, summed in double.
template <class T>
double delta_dot(const T* a, const T* b, i64 n) {
    double sums[8] = {};
    i64 i = 0;
    for (; i + 8 <= n; i += 8)
        for (int lane = 0; lane < 8; ++lane)
            sums[lane] += static_cast<double>(a[i + lane]) * static_cast<double>(b[i + lane]);
    for (; i < n; ++i) sums[i % 8] += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    double total = 0;
    for (const double sum : sums) total += sum;
    return total;
}

// Lanes of two vectors in turn, from their first or their second halves.
template <int lanes, bool second>
struct InTurn {
    static constexpr int at(int i) { return i % 2 * lanes + (second ? lanes / 2 : 0) + i / 2; }
};

// to (columns, to_row) = from', whose rows are from_row apart. A square of whole vectors is transposed by as many perfect
// shuffles of its numbers as halve its rows to one.
template <class T>
void delta_transpose(const T* from, i64 rows, i64 columns, i64 from_row, T* to, i64 to_row) {
    constexpr int W = width<T>;
    i64 i = 0;
    for (; i + W <= rows; i += W) {
        i64 j = 0;
        for (; j + W <= columns; j += W) {
            Vector<T> at[W], next[W];
#pragma GCC unroll 16
            for (int r = 0; r < W; ++r) at[r] = load_loose(from + (i + r) * from_row + j);
#pragma GCC unroll 4
            for (int halves = W; halves > 1; halves /= 2) {
#pragma GCC unroll 16
                for (int r = 0; r < W / 2; ++r) {
                    next[2 * r] = shuffle<T, InTurn<W, false>>(at[r], at[r + W / 2]);
                    next[2 * r + 1] = shuffle<T, InTurn<W, true>>(at[r], at[r + W / 2]);
                }
#pragma GCC unroll 16
                for (int r = 0; r < W; ++r) at[r] = next[r];
            }
#pragma GCC unroll 16
            for (int r = 0; r < W; ++r) store_loose<T>(to + (j + r) * to_row + i, at[r]);
        }
        for (; j < columns; ++j)
            for (int r = 0; r < W; ++r) to[j * to_row + i + r] = from[(i + r) * from_row + j];
    }
    for (; i < rows; ++i)
        for (i64 j = 0; j < columns; ++j) to[j * to_row + i] = from[i * from_row + j];
}

// How many of the first rows are finite.
template <class T>
i64 finite_rows(const T* rows, i64 count, i64 columns) {
    constexpr i64 W = width<T>;
    Vector<T> sum = zero<T>();
    for (i64 i = 0; i < count * columns; i += W) sum = fma(load<T>(rows + i), zero<T>(), sum);
    alignas(64) T lanes[W];
    store<T>(lanes, sum);
    bool all = true;
    for (i64 i = 0; i < W; ++i) all = all && lanes[i] == 0;
    if (all) return count;
    for (i64 i = 0; i < count * columns; ++i)
        if (!(rows[i] - rows[i] == 0)) return i / columns;
    return count;
}

// What the products over a chunk need of its keys, queries, strengths and gates. n updates and `steps` steps; rows are K
// numbers, `row` apart; rows of small matrices are `wide` apart.
template <class T>
struct DeltaChunk {
    i64 begin, end, n, steps, first;  // steps of the sequence; updates; of these the first in the caller's chunk
    bool fresh;                       // an episode begins here
    const Scaled<T>* keys;
    i64* at;                 // each update's place in the caller's arrays
    T *given, *reads;        // (n + steps): k_j and q_t; Q, the same with what the gates leave: one memory without
    T *writes, *seen;        // -E (n), -P (steps, n)
    T* values;               // v_j, of whole vectors
    double *inner, *lower;   // k_j'k_i and q_t'k_i (n + steps, n); L (n, n)
    double *decay, *since;   // with a gate per head D (n, n) and a (n)
    double *tau, *by_value;  // (n)
    Gate<T> kept;            // a of the last update

    i64 rows() const { return n + steps; }
};

template <class T>
struct DeltaChunks {
    const DeltaWork<T>& w;
    const i64 K, M, steps, C, row, wide, wide_double, limit;
    const bool gated, by_key;
    Buffer<T> given, reads, writes, seen, values, kept;
    Buffer<double> inner, lower, decay, since, tau, by_value, turned, keys_double;
    Buffer<i64> at;
    Buffer<DeltaChunk<T>> chunks;
    i64 count = 0;

    explicit DeltaChunks(const DeltaWork<T>& work)
        : w(work),
          K(w.K),
          M(w.M),
          steps(maximum<i64>(1, delta_chunk / w.M)),
          C(steps * w.M),
          row(row_stride<T>(w.K)),
          wide(round_up(C, width<T>)),
          wide_double(round_up(C, width<double>)),
          limit(w.rows.resets ? w.in.chunk : (w.in.chunk + steps - 1) / steps),
          gated(w.in.gate != nullptr),
          by_key(gated && w.in.gates > 1),
          given((w.updates + w.in.chunk) * row),
          reads(gated ? (w.updates + w.in.chunk) * row : 1),
          writes(w.updates * row),
          seen(w.in.chunk * wide),
          values(w.updates * w.stride),
          kept(limit * w.in.gates),
          inner((w.updates + w.in.chunk) * wide_double),
          lower(w.updates * C),
          decay(gated && !by_key ? w.updates * C : 1),
          since(w.updates),
          tau(w.updates),
          by_value(w.updates),
          turned(K * wide_double),
          keys_double((C + steps) * K),
          at(w.updates),
          chunks(limit) {}

    // Where the chunk that begins at step t ends, of those between `begin` and `end`.
    i64 end_of(i64 t, i64 begin, i64 end, i64 b) const {
        i64 last = t + 1;
        while (last < end && (last - begin) % steps && !w.resets(w.row(last, b))) ++last;
        return last;
    }

    // Adds the chunk of steps t to `last`; `keys` are those of all updates from step `begin`.
    void add(const Scaled<T>* keys, i64 b, i64 h, i64 begin, i64 t, i64 last) {
        prepare(chunks[count], count, keys, b, h, begin, t, last);
        ++count;
    }

    // Of update l with a gate per key entry, with d (n, K) the keys of the updates before it as the gates left them:
    // d = g o d, and d_l = k_l. `previous` is d before, or null for d itself.
    void decay_keys(const DeltaChunk<T>& c, i64 b, i64 h, i64 l, const T* previous, T* d) const {
        const T* const g = l % M ? nullptr : w.gate(w.row(c.begin + l / M, b), h).factors;
        if (!previous) previous = d;
        for (i64 i = 0; i < l; ++i)
            if (g)
                for (i64 x = 0; x < K; ++x) d[i * row + x] = g[x] * previous[i * row + x];
            else if (d != previous) copy(d + i * row, previous + i * row, K);
        copy(d + l * row, c.given + l * row, K);
    }

private:
    void prepare(DeltaChunk<T>& c, i64 index, const Scaled<T>* keys, i64 b, i64 h, i64 origin, i64 begin, i64 end) {
        const i64 step = begin - origin, e = step * M;
        c = {begin,
             end,
             (end - begin) * M,
             end - begin,
             e,
             w.resets(w.row(begin, b)),
             keys + e,
             at + e,
             given + (e + step) * row,
             gated ? reads + (e + step) * row : given + (e + step) * row,
             writes + e * row,
             seen + step * wide,
             values + e * w.stride,
             inner + (e + step) * wide_double,
             lower + e * C,
             decay + (gated && !by_key ? e * C : 0),
             since + e,
             tau + e,
             by_value + e,
             {gated ? kept + index * w.in.gates : nullptr, w.in.gates}};
        for (i64 j = 0; j < c.n; ++j) {
            c.at[j] = w.update(w.row(begin + j / M, b), j % M, h);
            const double s = c.keys[j].inverse;
            c.by_value[j] = static_cast<double>(w.beta(c.at[j])) * s;
            c.tau[j] = c.by_value[j] * s;
            copy(c.given + j * row, c.keys[j].k, K);
            copy(c.values + j * w.stride, w.v(c.at[j]), w.D);
        }
        for (i64 t = 0; t < c.steps; ++t) copy(c.given + (c.n + t) * row, w.q(w.row(begin + t, b), h), K);
        clear(c.seen, c.steps * wide);
        if (by_key) gates_by_key(c, b, h);
        else products(c, b, h);
    }

    // inner = [k; q] k' up to the update of each row; then L, P, Q, E and a.
    void products(DeltaChunk<T>& c, i64 b, i64 h) {
        for (i64 i = 0; i < c.rows(); ++i)
            for (i64 x = 0; x < K; ++x) keys_double[i * K + x] = static_cast<double>(c.given[i * row + x]);
        delta_transpose<double>(keys_double.data, c.n, K, K, turned.data, wide_double);
        constexpr i64 columns = columns_at_once(rows_at_once) * width<double>;
        for (i64 i = 0; i < c.n; i += columns) {
            const auto rows_of = [&](i64 first, i64 end) {
                delta_product<double>(end - first, minimum(columns, round_up(c.n - i, width<double>)),
                                      {K, keys_double + first * K, K, 1, turned + i, wide_double, nullptr, 0,
                                       c.inner + first * wide_double + i, wide_double});
            };
            rows_of(i, c.n);
            rows_of(c.n + i / M, c.rows());
        }
        if (!gated) {
            for (i64 j = 0; j < c.n; ++j) copy(c.lower + j * C, c.inner + j * wide_double, j);
            for (i64 t = 0; t < c.steps; ++t)
                for (i64 i = 0; i < (t + 1) * M; ++i)
                    c.seen[t * wide + i] = -static_cast<T>(c.inner[(c.n + t) * wide_double + i]);
            for (i64 j = 0; j < c.n; ++j)
                for (i64 x = 0; x < K; ++x) c.writes[j * row + x] = -c.given[j * row + x];
            return;
        }
        double a = 1;
        for (i64 j = 0; j < c.n; ++j) {
            const double g = j % M ? 1 : static_cast<double>(*w.gate(w.row(c.begin + j / M, b), h).factors);
            a *= g;
            c.since[j] = a;
            double* const D = c.decay + j * C;
            for (i64 i = 0; i < j; ++i) D[i] = g * (D - C)[i];
            D[j] = 1;
            for (i64 i = 0; i < j; ++i) c.lower[j * C + i] = D[i] * c.inner[j * wide_double + i];
            scale(c, j, static_cast<T>(a));
            if (j % M != M - 1) continue;
            const i64 t = j / M;
            scale(c, c.n + t, static_cast<T>(a));
            for (i64 i = 0; i <= j; ++i) c.seen[t * wide + i] = -static_cast<T>(D[i] * c.inner[(c.n + t) * wide_double + i]);
        }
        const double* const D = c.decay + (c.n - 1) * C;
        for (i64 j = 0; j < c.n; ++j) {
            const T factor = -static_cast<T>(D[j]);
            for (i64 x = 0; x < K; ++x) c.writes[j * row + x] = factor * c.given[j * row + x];
        }
        kept[c.kept.factors - kept.data] = static_cast<T>(a);
    }

    void scale(DeltaChunk<T>& c, i64 i, T factor) {
        for (i64 x = 0; x < K; ++x) c.reads[i * row + x] = factor * c.given[i * row + x];
    }

    void gates_by_key(DeltaChunk<T>& c, i64 b, i64 h) {
        T* const a = kept + (c.kept.factors - kept.data);
        for (i64 x = 0; x < K; ++x) a[x] = 1;
        for (i64 j = 0; j < c.n; ++j) {
            const T* const g = w.gate(w.row(c.begin + j / M, b), h).factors;
            if (j % M == 0)
                for (i64 x = 0; x < K; ++x) a[x] *= g[x];
            decay_keys(c, b, h, j, nullptr, c.writes);
            const T* const k = c.given + j * row;
            for (i64 i = 0; i < j; ++i) c.lower[j * C + i] = delta_dot(c.writes + i * row, k, K);
            for (i64 x = 0; x < K; ++x) c.reads[j * row + x] = a[x] * k[x];
            if (j % M != M - 1) continue;
            const i64 t = j / M;
            const T* const q = c.given + (c.n + t) * row;
            for (i64 i = 0; i <= j; ++i) c.seen[t * wide + i] = -static_cast<T>(delta_dot(c.writes + i * row, q, K));
            for (i64 x = 0; x < K; ++x) c.reads[(c.n + t) * row + x] = a[x] * q[x];
        }
        for (i64 j = 0; j < c.n; ++j)
            for (i64 x = 0; x < K; ++x) c.writes[j * row + x] = -c.writes[j * row + x];
    }
};

// Rows of a block of columns as doubles and back.
template <class T, int vectors>
struct DeltaRow {
    static constexpr int W = width<T>, columns = vectors * W, count = columns / width<double>;
    Vector<double> at[count];

    ORTHORNN_INLINE void read(const T* from) {
        alignas(64) double wide[columns];
        for (int c = 0; c < columns; ++c) wide[c] = static_cast<double>(from[c]);
        for (int v = 0; v < count; ++v) at[v] = load<double>(wide + v * width<double>);
    }
    ORTHORNN_INLINE void write(double* to) const {
        for (int v = 0; v < count; ++v) store<double>(to + v * width<double>, at[v]);
    }
    ORTHORNN_INLINE void subtract(double factor, const double* from) {
        const Vector<double> f = broadcast(factor);
        for (int v = 0; v < count; ++v) at[v] = fnma(f, load<double>(from + v * width<double>), at[v]);
    }
};

// p_j -= sum over i < j of L_ji alpha_i;  alpha_j = tau_j p_j - b_j v_j, zero in columns that are of no value. p may be null.
template <class T, int vectors>
void delta_solve_down(const DeltaWork<T>& w, const DeltaChunk<T>& c, i64 C, i64 column, T* p, T* alpha, double* solved) {
    constexpr int columns = vectors * width<T>;
    const i64 given = minimum<i64>(columns, w.D - column);
    alignas(64) double own[columns];
    for (i64 j = 0; j < c.n; ++j) {
        DeltaRow<T, vectors> sum;
        sum.read(p + j * columns);
        for (i64 i = 0; i < j; ++i) sum.subtract(c.lower[j * C + i], solved + i * columns);
        sum.write(own);
        const T* const v = c.values + j * w.stride + column;
        const double tau = c.tau[j], b = c.by_value[j];
        for (int x = 0; x < columns; ++x) {
            p[j * columns + x] = static_cast<T>(own[x]);
            alpha[j * columns + x] = static_cast<T>(tau * own[x] - b * static_cast<double>(v[x]));
        }
        clear(alpha + j * columns + given, columns - given);
        for (int x = 0; x < columns; ++x) solved[j * columns + x] = static_cast<double>(alpha[j * columns + x]);
    }
}

// y_i -= sum over j > i of L_ji x_j;  x_i = tau_i y_i.
template <class T, int vectors>
void delta_solve_up(const DeltaWork<T>& w, const DeltaChunk<T>& c, i64 C, i64 column, T* y, T* x, double* solved) {
    constexpr int columns = vectors * width<T>;
    const i64 given = minimum<i64>(columns, w.D - column);
    alignas(64) double own[columns];
    for (i64 i = c.n - 1; i >= 0; --i) {
        DeltaRow<T, vectors> sum;
        sum.read(y + i * columns);
        for (i64 j = c.n - 1; j > i; --j) sum.subtract(c.lower[j * C + i], solved + j * columns);
        sum.write(own);
        const double tau = c.tau[i];
        for (int k = 0; k < columns; ++k) {
            y[i * columns + k] = static_cast<T>(own[k]);
            x[i * columns + k] = static_cast<T>(tau * own[k]);
        }
        clear(x + i * columns + given, columns - given);
        for (int k = 0; k < columns; ++k) solved[i * columns + k] = static_cast<double>(x[i * columns + k]);
    }
}

template <class T>
struct DeltaSolves {
    void (*down)(const DeltaWork<T>&, const DeltaChunk<T>&, i64, i64, T*, T*, double*);
    void (*up)(const DeltaWork<T>&, const DeltaChunk<T>&, i64, i64, T*, T*, double*);
};
template <class T, int vectors>
constexpr DeltaSolves<T> delta_solves_of{delta_solve_down<T, vectors>, delta_solve_up<T, vectors>};
template <class T>
constexpr DeltaSolves<T> delta_solves[delta_block] = {delta_solves_of<T, 1>, delta_solves_of<T, 2>, delta_solves_of<T, 3>,
                                                      delta_solves_of<T, 4>};

// to = g o from, rows of `columns` numbers.
template <class T>
void delta_gated(const T* from, T* to, Gate<T> gate, i64 keys, i64 columns) {
    for (i64 i = 0; i < keys; ++i) {
        const Vector<T> g = broadcast(gate.of(i));
        for (i64 x = 0; x < columns; x += width<T>) store<T>(to + i * columns + x, g * load<T>(from + i * columns + x));
    }
}

// to = a o from - E alpha: a block of columns after a chunk.
template <class T>
void delta_after(const DeltaChunk<T>& c, i64 row, i64 keys, i64 columns, const T* from, const T* alpha, T* to) {
    if (c.kept.factors) delta_gated(from, to, c.kept, keys, columns);
    delta_product<T>(keys, columns,
                     {c.n, c.writes, 1, row, alpha, columns, c.kept.factors ? to : from, columns, to, columns});
}

template <class T>
struct DeltaProductsForwardPart : DeltaForwardPart<T> {
    DeltaChunks<T> chunks;
    Buffer<T> read, alpha_rows, out;  // of a chunk: (updates and steps, block), (updates, block), (steps, whole rows)
    Buffer<double> solved;
    explicit DeltaProductsForwardPart(const DeltaWork<T>& w)
        : DeltaForwardPart<T>(w),
          chunks(w),
          read((chunks.C + chunks.steps) * w.block),
          alpha_rows(chunks.C * w.block),
          out(chunks.steps * w.stride),
          solved(chunks.C * w.block) {}
};

template <class T>
struct DeltaProductsForward : DeltaForwardWork<T> {
    using Base = DeltaForwardWork<T>;
    using Base::D, Base::H, Base::K, Base::M, Base::rows, Base::stride;
    using Part = DeltaProductsForwardPart<T>;

    explicit DeltaProductsForward(const DeltaForward& c) : Base(c) {}

    // The steps of a sequence lie far apart: those of the next chunk are asked for while this one is computed, some with each
    // block of columns.
    void ask(const DeltaChunk<T>& c, i64 b, i64 h, i64 column, i64 columns) const {
        const i64 end = minimum(c.end + c.steps, length(rows, b));
        for (i64 t = c.end + c.steps * column / stride; t < minimum(c.end + c.steps * (column + columns) / stride, end);
             ++t) {
            const i64 row = this->row(t, b);
            this->ask_for(row, h);
            for (i64 i = 0; i < D; i += 64 / static_cast<i64>(sizeof(T))) __builtin_prefetch(this->out(row, h) + i, 1);
        }
    }

    void run(Part& own, const DeltaChunk<T>& c, i64 b, i64 h, i64 column, i64 columns, const DeltaFunctions<T>& f) const {
        const DeltaChunks<T>& given = own.chunks;
        const Columns<T> S = this->columns(own.S.data, column);
        if (c.fresh) this->begin_again(S, b, h, column, minimum(columns, D - column));
        ask(c, b, h, column, columns);
        T *const read = own.read.data, *const alpha = own.alpha_rows.data, *const out = own.out + column;
        delta_product<T>(c.rows(), columns, {K, c.reads, given.row, 1, S.at, columns, nullptr, 0, read, columns});
        delta_solves<T>[columns / width<T> - 1].down(*this, c, given.C, column, read, alpha, own.solved.data);
        const i64 good = finite_rows(alpha, c.n, columns) / M;
        if (good < c.steps) clear(alpha + good * M * columns, (c.n - good * M) * columns);
        delta_product<T>(good, columns,
                         {c.n, c.seen, given.wide, 1, alpha, columns, read + c.n * columns, columns, out, stride});
        if (good == c.steps) return delta_after(c, given.row, K, columns, S.at, alpha, S.at);
        this->steps(own, c.keys, b, h, c.begin, c.end, column, columns, f, [&](i64 t, const T* o) {
            if (t >= c.begin + good) copy(out + (t - c.begin) * stride, o, columns);
        });
    }

    // Where episodes are short, updates one by one are faster. What is chosen depends on earlier steps only, so that the bits
    // of what a step reads do, too: a chunk after one that an episode cut short is done one by one.
    void run(Part& own, i64 b, i64 h) const {
        DeltaChunks<T>& given = own.chunks;
        bool was_short = false;
        this->over_chunks(own, b, h, [&](i64 begin, i64 end) {
            for (i64 t = begin; t < end;) {
                const i64 last = given.end_of(t, begin, end, b);
                this->find_keys(own, b, h, t, last);
                given.count = 0;
                if (!was_short) given.add(own.keys.data, b, h, t, t, last);
                this->over_blocks([&](i64 column, i64 columns, const DeltaFunctions<T>& f) {
                    if (!was_short) return run(own, given.chunks[0], b, h, column, columns, f);
                    this->steps(own, own.keys.data, b, h, t, last, column, columns, f,
                                [&](i64 at, const T* o) { copy(own.out + (at - t) * stride + column, o, columns); });
                });
                for (i64 at = t; at < last; ++at) copy(this->out(this->row(at, b), h), own.out + (at - t) * stride, D);
                was_short = (last - t) * M < short_chunk && last < end && (last - begin) % given.steps;
                t = last;
            }
        });
    }
};

template <class T>
void delta_forward_by_products(const DeltaForward& call) {
    const FlushDenormals flush;
    const DeltaProductsForward<T> work(call);
    using Part = DeltaProductsForwardPart<T>;
    work.template over_pairs<Part>(call.run, [&](Part& own, i64 b, i64 h) { work.run(own, b, h); });
}

}  // namespace orthornn::ORTHORNN_ISA
