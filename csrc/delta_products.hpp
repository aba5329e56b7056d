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
constexpr i64 most_heads = 8;    // that are done together

// Heads whose states fit in a second cache level take turns, chunk by chunk: a page of the caller's arrays has rows
// of several heads, and is looked up once for all of them.
template <class T>
i64 delta_heads(const DeltaWork<T>& w) {
    constexpr i64 bytes = 1 << 19;
    return maximum<i64>(1, minimum(most_heads, bytes / (w.K * w.stride * static_cast<i64>(sizeof(T)))));
}

// Does nothing between the blocks of a product.
struct DeltaNothing {
    void operator()(i64) const {}
};

// c = init + a b for `rows` rows and columns of whole vectors; meanwhile(its rows times the depth) after each block.
template <class T, class Meanwhile = DeltaNothing>
void delta_product(i64 rows, i64 columns, const TileArguments<T>& t, const Meanwhile& meanwhile = {}) {
    constexpr i64 wide = columns_at_once(rows_at_once) * width<T>;
    if (rows <= 0) return;
    const i64 parts = (rows + rows_at_once - 1) / rows_at_once, least = rows / parts, more = rows % parts;
    TileArguments<T> own = t;
    for (i64 j = 0; j < columns; j += wide) {
        const i64 vectors = minimum(wide, columns - j) / width<T>;
        own.b = t.b + j;
        for (i64 part = 0, i = 0; part < parts; ++part) {
            const i64 size = least + (part < more);
            own.a = t.a + i * t.a_row;
            own.c = t.c + i * t.c_row + j;
            if (t.init) own.init = t.init + i * t.init_row + j;
            if (t.factors) own.factors = t.factors + i * t.factor_step;
            tiles<T>.at[size][vectors](own);
            meanwhile(size * t.depth);
            i += size;
        }
    }
}

// write(r, i, a_r'b_i) for the first count(r) rows b of each row a, where count never falls; `depth` is whole vectors. A sum
// has the same bits in any company.
template <class T, class Count, class Write>
void delta_dots(const T* a, i64 a_row, i64 rows, const T* b, i64 b_row, i64 depth, const Count& count, const Write& write) {
    constexpr int high = 4, wide = 3, W = width<T>;
    for (i64 r = 0; r < rows; r += high) {
        const i64 last = minimum<i64>(rows - r, high) - 1, limit = count(r + last);
        const T* left[high];
        for (int y = 0; y < high; ++y) left[y] = a + (r + minimum<i64>(y, last)) * a_row;
        for (i64 i = 0; i < limit; i += wide) {
            const T* right[wide];
            for (int x = 0; x < wide; ++x) right[x] = b + minimum<i64>(i + x, limit - 1) * b_row;
            Vector<T> sum[high][wide];
#pragma GCC unroll 4
            for (int y = 0; y < high; ++y)
#pragma GCC unroll 3
                for (int x = 0; x < wide; ++x) sum[y][x] = zero<T>();
            for (i64 c = 0; c < depth; c += W) {
                Vector<T> at[wide];
#pragma GCC unroll 3
                for (int x = 0; x < wide; ++x) at[x] = load_once(right[x] + c);
#pragma GCC unroll 4
                for (int y = 0; y < high; ++y) {
                    const Vector<T> own = load_once(left[y] + c);
#pragma GCC unroll 3
                    for (int x = 0; x < wide; ++x) sum[y][x] = fma(own, at[x], sum[y][x]);
                }
            }
#pragma GCC unroll 4
            for (int y = 0; y < high; ++y)
#pragma GCC unroll 3
                for (int x = 0; x < wide; ++x)
                    if (y <= last && i + x < count(r + y)) write(r + y, i + x, sum_of_lanes(sum[y][x]));
        }
    }
}

// The product of two rows, summed in double.
template <class T>
double delta_dot(const T* a, const T* b, i64 n) {
    constexpr i64 W = width<double>;
    VD sums[4] = {};
    i64 i = 0;
    for (; i + 4 * W <= n; i += 4 * W)
#pragma GCC unroll 4
        for (i64 part = 0; part < 4; ++part)
            sums[part] = fma(load_double(a + i + part * W), load_double(b + i + part * W), sums[part]);
    double total = sum_of_lanes((sums[0] + sums[1]) + (sums[2] + sums[3]));
    for (; i < n; ++i) total += static_cast<double>(a[i]) * static_cast<double>(b[i]);
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

// A short row, for which the C library's function would take longer to choose its way.
template <class T>
ORTHORNN_INLINE void copy_row(T* to, const T* from, i64 count) {
    i64 i = 0;
    for (; i + width<T> <= count; i += width<T>) store_loose<T>(to + i, load_loose(from + i));
    for (; i < count; ++i) to[i] = from[i];
}

// Inputs of some steps of one sequence and head, from step `from` on, one row after another and zero up to whole vectors. In
// the caller's arrays the rows of a head lie whole steps apart, where they share cache sets and pages hold few of them.
template <class T>
struct DeltaStage {
    Buffer<T> k, q, v, o;  // updates and steps; k and q are `row` apart, v and o w.stride
    i64 from = 0;
    DeltaStage(const DeltaWork<T>& w, i64 steps, i64 row, bool with_o)
        : k(steps * w.M * row), q(steps * row), v(steps * w.M * w.stride), o(with_o ? steps * w.stride : 1) {}
};

// Brings the rows of the steps that come next while this chunk is computed: at even distances in work, so that the memory
// keeps up, a row is asked for and an earlier one, which is there, is copied.
template <class T>
struct DeltaFeed {
    static constexpr i64 ahead = 8;  // rows that are on their way
    struct Row {
        const T* from;
        T* to;
        i64 count;
    };
    const DeltaWork<T>& w;
    const i64 row;
    const T* const o;  // (R, heads, values) to copy, too, or null
    const i64 kinds, each;  // rows of a step; work between two rows
    Buffer<Row> rows;
    i64 count = 0, asked = 0, copied = 0, work = 0;

    // step_work: rows times depth of the products of a step; `steps` of them come at most.
    DeltaFeed(const DeltaWork<T>& work_, i64 row_, const T* o_, i64 steps, i64 step_work)
        : w(work_), row(row_), o(o_), kinds(2 * work_.M + (o_ ? 2 : 1)), each(step_work / kinds), rows(steps * kinds) {}

    void start(DeltaStage<T>& stage, i64 b, i64 h, i64 from, i64 end) {
        stage.from = from;
        count = asked = copied = work = 0;
        for (i64 t = 0; t < end - from; ++t) {
            const i64 at = w.row(from + t, b), M = w.M;
            for (i64 i = 0; i < M; ++i) {
                rows[count++] = {w.k(w.update(at, i, h)), stage.k + (t * M + i) * row, w.K};
                rows[count++] = {w.v(w.update(at, i, h)), stage.v + (t * M + i) * w.stride, w.D};
            }
            rows[count++] = {w.q(at, h), stage.q + t * row, w.K};
            if (o) rows[count++] = {o + (at * w.H + h) * w.D, stage.o + t * w.stride, w.D};
        }
    }
    void operator()(i64 done) {
        for (work += done; work >= each && copied < count; work -= each) move();
    }
    void finish() {
        while (copied < count) move();
    }

private:
    void move() {
        if (asked < count) {
            prefetch(rows[asked].from, rows[asked].count);
            ++asked;
        }
        if (copied + ahead < asked || asked == count) {
            copy_row(rows[copied].to, rows[copied].from, rows[copied].count);
            ++copied;
        }
    }
};

// What the products over a chunk need of its keys, queries, strengths and gates. n updates and `steps` steps; rows are K
// numbers, `row` apart; rows of small matrices are `wide` apart.
template <class T>
struct DeltaChunk {
    i64 begin, end, n, steps, first;  // steps of the sequence; updates; of these the first in the caller's chunk
    bool fresh;                       // an episode begins here
    const Scaled<T>* keys;
    i64* at;                 // each update's place in the caller's arrays
    const T *k, *q, *values; // k_j and v_j (n), q_t (steps), of whole vectors
    T* reads;                // (n + steps): Q, k_j and q_t with what the gates leave
    T *writes, *seen;        // -E (n), -P (steps, n)
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
    Buffer<T> reads, writes, seen, kept;
    Buffer<double> inner, lower, decay, since, tau, by_value, keys_double;
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
          reads((w.updates + w.in.chunk) * row),
          writes(w.updates * row),
          seen(w.in.chunk * wide),
          kept(limit * w.in.gates),
          inner((w.updates + w.in.chunk) * wide_double),
          lower(w.updates * C),
          decay(by_key ? 1 : w.updates * C),
          since(w.updates),
          tau(w.updates),
          by_value(w.updates),
          keys_double(C * round_up(K, width<double>)),
          at(w.updates),
          chunks(limit) {}

    // Where the chunk that begins at step t ends, of those between `begin` and `end`.
    i64 end_of(i64 t, i64 begin, i64 end, i64 b) const {
        i64 last = t + 1;
        while (last < end && (last - begin) % steps && !w.resets(w.row(last, b))) ++last;
        return last;
    }

    // The keys of the updates of these steps. A long one is scaled where it lies.
    void find_keys(const DeltaStage<T>& stage, Scaled<T>* keys, T* spare, i64 begin, i64 end) const {
        for (i64 e = 0; e < (end - begin) * M; ++e) {
            T* const k = stage.k + ((begin - stage.from) * M + e) * row;
            keys[e] = w.key(k, spare);
            if (keys[e].k == spare) copy(k, spare, K);
            keys[e].k = k;
        }
    }

    // Adds the chunk of steps t to `last`; `keys` are those of all updates from step `begin`.
    void add(const DeltaStage<T>& stage, const Scaled<T>* keys, i64 b, i64 h, i64 begin, i64 t, i64 last) {
        prepare(chunks[count], count, stage, keys, b, h, begin, t, last);
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
        copy(d + l * row, c.k + l * row, K);
    }

private:
    void prepare(DeltaChunk<T>& c, i64 index, const DeltaStage<T>& stage, const Scaled<T>* keys, i64 b, i64 h, i64 origin,
                 i64 begin, i64 end) {
        const i64 step = begin - origin, e = step * M, staged = begin - stage.from;
        c = {begin,
             end,
             (end - begin) * M,
             end - begin,
             e,
             w.resets(w.row(begin, b)),
             keys + e,
             at + e,
             stage.k + staged * M * row,
             stage.q + staged * row,
             stage.v + staged * M * w.stride,
             reads + (e + step) * row,
             writes + e * row,
             seen + step * wide,
             inner + (e + step) * wide_double,
             lower + e * C,
             decay + (by_key ? 0 : e * C),
             since + e,
             tau + e,
             by_value + e,
             {gated ? kept + index * w.in.gates : nullptr, w.in.gates}};
        for (i64 j = 0; j < c.n; ++j) {
            c.at[j] = w.update(w.row(begin + j / M, b), j % M, h);
            const double s = c.keys[j].inverse;
            c.by_value[j] = static_cast<double>(w.beta(c.at[j])) * s;
            c.tau[j] = c.by_value[j] * s;
        }
        clear(c.seen, c.steps * wide);
        if (by_key) gates_by_key(c, b, h);
        else products(c, b, h);
    }

    // inner = [k; q] k' up to the update of each row, those of keys in double; then L, P, Q, E and a.
    void products(DeltaChunk<T>& c, i64 b, i64 h) {
        const i64 row_double = round_up(K, width<double>);
        for (i64 i = 0; i < c.n; ++i)
            for (i64 x = 0; x < row_double; x += width<double>)
                store<double>(keys_double + i * row_double + x, load_double(c.k + i * row + x));
        delta_dots<double>(
            keys_double.data, row_double, c.n, keys_double.data, row_double, row_double, [](i64 j) { return j; },
            [&](i64 j, i64 i, double found) { c.inner[j * wide_double + i] = found; });
        delta_dots<T>(
            c.q, row, c.steps, c.k, row, round_up(K, width<T>), [&](i64 t) { return (t + 1) * M; },
            [&](i64 t, i64 i, T found) { c.inner[(c.n + t) * wide_double + i] = static_cast<double>(found); });
        double a = 1;
        for (i64 j = 0; j < c.n; ++j) {
            const bool acts = gated && j % M == 0;
            const double g = acts ? static_cast<double>(*w.gate(w.row(c.begin + j / M, b), h).factors) : 1;
            a *= g;
            c.since[j] = a;
            double* const D = c.decay + j * C;
            for (i64 i = 0; i < j; ++i) D[i] = g * (D - C)[i];
            D[j] = 1;
            for (i64 i = 0; i < j; ++i) c.lower[j * C + i] = D[i] * c.inner[j * wide_double + i];
            scale(static_cast<T>(a), c.k + j * row, c.reads + j * row);
            if (j % M != M - 1) continue;
            const i64 t = j / M;
            scale(static_cast<T>(a), c.q + t * row, c.reads + (c.n + t) * row);
            for (i64 i = 0; i <= j; ++i) c.seen[t * wide + i] = -static_cast<T>(D[i] * c.inner[(c.n + t) * wide_double + i]);
        }
        const double* const D = c.decay + (c.n - 1) * C;
        for (i64 j = 0; j < c.n; ++j) scale(-static_cast<T>(D[j]), c.k + j * row, c.writes + j * row);
        if (gated) kept[c.kept.factors - kept.data] = static_cast<T>(a);
    }

    void scale(T factor, const T* from, T* to) const {
        for (i64 x = 0; x < row; x += width<T>) store<T>(to + x, broadcast(factor) * load<T>(from + x));
    }

    void gates_by_key(DeltaChunk<T>& c, i64 b, i64 h) {
        T* const a = kept + (c.kept.factors - kept.data);
        for (i64 x = 0; x < K; ++x) a[x] = 1;
        for (i64 j = 0; j < c.n; ++j) {
            const T* const g = w.gate(w.row(c.begin + j / M, b), h).factors;
            if (j % M == 0)
                for (i64 x = 0; x < K; ++x) a[x] *= g[x];
            decay_keys(c, b, h, j, nullptr, c.writes);
            const T* const k = c.k + j * row;
            for (i64 i = 0; i < j; ++i) c.lower[j * C + i] = delta_dot(c.writes + i * row, k, K);
            for (i64 x = 0; x < K; ++x) c.reads[j * row + x] = a[x] * k[x];
            if (j % M != M - 1) continue;
            const i64 t = j / M;
            const T* const q = c.q + t * row;
            for (i64 i = 0; i <= j; ++i) c.seen[t * wide + i] = -static_cast<T>(delta_dot(c.writes + i * row, q, K));
            for (i64 x = 0; x < K; ++x) c.reads[(c.n + t) * row + x] = a[x] * q[x];
        }
        for (i64 j = 0; j < c.n; ++j)
            for (i64 x = 0; x < K; ++x) c.writes[j * row + x] = -c.writes[j * row + x];
    }
};

// Solves for n rows of a block of columns, in double: finish(r)(x, given_r - sum over i < r of factor(r, i) found_i) returns
// the numbers of found_r from column x on. Up to eight vectors are enough to work while one waits for an earlier row.
template <class T, int vectors, class Read, class Factor, class Finish>
ORTHORNN_INLINE void delta_solve(i64 n, double* found, const Read& read, const Factor& factor, const Finish& finish) {
    constexpr int W = width<double>, columns = vectors * width<T>, count = columns / W;
    for (i64 r = 0; r < n; ++r) {
        VD sum[count];
#pragma GCC unroll 16
        for (int v = 0; v < count; ++v) sum[v] = read(r, v * W);
        for (i64 i = 0; i < r; ++i) {
            const VD f = broadcast(factor(r, i));
#pragma GCC unroll 16
            for (int v = 0; v < count; ++v) sum[v] = fnma(f, load<double>(found + i * columns + v * W), sum[v]);
        }
        const auto end = finish(r);
#pragma GCC unroll 16
        for (int v = 0; v < count; ++v) store<double>(found + r * columns + v * W, end(v * W, sum[v]));
    }
}

// p_j -= sum over i < j of L_ji alpha_i;  alpha_j = tau_j p_j - b_j v_j, zero in columns that are of no value.
template <class T, int vectors>
void delta_solve_down(const DeltaWork<T>& w, const DeltaChunk<T>& c, i64 C, i64 column, T* p, T* alpha, double* solved) {
    constexpr int columns = vectors * width<T>;
    delta_solve<T, vectors>(
        c.n, solved, [&](i64 j, int x) { return load_double(p + j * columns + x); },
        [&](i64 j, i64 i) { return c.lower[j * C + i]; },
        [&](i64 j) {
            return [tau = broadcast(c.tau[j]), b = broadcast(c.by_value[j]), v = c.values + j * w.stride + column,
                    p = p + j * columns, alpha = alpha + j * columns](int x, VD sum) {
                store_double(p + x, sum);
                return store_double(alpha + x, tau * sum - b * load_double(v + x));
            };
        });
    const i64 given = minimum<i64>(columns, w.D - column);
    for (i64 j = 0; given < columns && j < c.n; ++j) clear(alpha + j * columns + given, columns - given);
}

// y_i -= sum over j > i of L_ji x_j;  x_i = tau_i y_i.
template <class T, int vectors>
void delta_solve_up(const DeltaWork<T>& w, const DeltaChunk<T>& c, i64 C, i64 column, T* y, T* x, double* solved) {
    constexpr int columns = vectors * width<T>;
    const i64 last = c.n - 1;
    delta_solve<T, vectors>(
        c.n, solved, [&](i64 r, int k) { return load_double(y + (last - r) * columns + k); },
        [&](i64 r, i64 i) { return c.lower[(last - i) * C + last - r]; },
        [&](i64 r) {
            const i64 at = (last - r) * columns;
            return [tau = broadcast(c.tau[last - r]), y = y + at, x = x + at](int k, VD sum) {
                store_double(y + k, sum);
                return store_double(x + k, tau * sum);
            };
        });
    const i64 given = minimum<i64>(columns, w.D - column);
    for (i64 j = 0; given < columns && j < c.n; ++j) clear(x + j * columns + given, columns - given);
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

// to = a o from + rows' b, for `depth` rows of K numbers and of `columns` numbers: the state, or G, beyond a chunk.
template <class T, class Meanwhile>
void delta_beyond(Gate<T> kept, i64 keys, i64 columns, const T* from, i64 depth, const T* rows, i64 row, const T* b, T* to,
                  const Meanwhile& meanwhile) {
    delta_product<T>(keys, columns,
                     {depth, rows, 1, row, b, columns, from, columns, to, columns, kept.factors, kept.gates > 1 ? 1 : 0},
                     meanwhile);
}

template <class T>
struct DeltaProductsForwardPart : DeltaForwardPart<T> {
    DeltaChunks<T> chunks;
    Buffer<T> read, alpha_rows, out;  // of a chunk: (updates and steps, block), (updates, block), (steps, whole rows)
    Buffer<double> solved;
    DeltaStage<T> here, next;
    explicit DeltaProductsForwardPart(const DeltaWork<T>& w)
        : DeltaForwardPart<T>(w, delta_heads(w)),
          chunks(w),
          read((chunks.C + chunks.steps) * w.block),
          alpha_rows(chunks.C * w.block),
          out(chunks.steps * w.stride),
          solved(chunks.C * w.block),
          here(w, chunks.steps, chunks.row, false),
          next(w, chunks.steps, chunks.row, false) {}
};

template <class T>
struct DeltaProductsForward : DeltaForwardWork<T> {
    using Base = DeltaForwardWork<T>;
    using Base::D, Base::H, Base::K, Base::M, Base::rows, Base::stride;
    using Part = DeltaProductsForwardPart<T>;

    explicit DeltaProductsForward(const DeltaForward& c) : Base(c) {}

    void run(Part& own, const DeltaChunk<T>& c, DeltaFeed<T>& feed, i64 b, i64 h, i64 column, i64 columns,
             const DeltaFunctions<T>& f) const {
        const DeltaChunks<T>& given = own.chunks;
        const auto meanwhile = [&](i64 count) { feed(count); };
        const Columns<T> S = this->columns(own.S, column);
        if (c.fresh) this->begin_again(S, b, h, column, minimum(columns, D - column));
        T *const read = own.read.data, *const alpha = own.alpha_rows.data, *const out = own.out + column;
        delta_product<T>(c.rows(), columns, {K, c.reads, given.row, 1, S.at, columns, nullptr, 0, read, columns},
                         meanwhile);
        delta_solves<T>[columns / width<T> - 1].down(*this, c, given.C, column, read, alpha, own.solved.data);
        const i64 good = finite_rows(alpha, c.n, columns) / M;
        if (good < c.steps) clear(alpha + good * M * columns, (c.n - good * M) * columns);
        for (i64 t = 0; t < good; t += rows_at_once) {
            const i64 count = minimum<i64>(rows_at_once, good - t);
            delta_product<T>(count, columns,
                             {(t + count) * M, c.seen + t * given.wide, given.wide, 1, alpha, columns,
                              read + (c.n + t) * columns, columns, out + t * stride, stride});
        }
        if (good == c.steps)
            return delta_beyond(c.kept, K, columns, S.at, c.n, c.writes, given.row, alpha, S.at, meanwhile);
        this->steps(own, c.keys, b, h, c.begin, c.end, column, columns, f, [&](i64 t, const T* o) {
            if (t >= c.begin + good) copy(out + (t - c.begin) * stride, o, columns);
        });
    }

    // Steps `begin` to `end` of a head, which are `here`. Where episodes are short, updates one by one are faster. What is
    // chosen depends on earlier steps only, so that the bits of what a step reads do, too: a chunk after one that an episode
    // cut short is done one by one.
    void run(Part& own, const DeltaStage<T>& here, DeltaFeed<T>& feed, i64 b, i64 h, i64 begin, i64 end, bool& was_short) const {
        DeltaChunks<T>& given = own.chunks;
        for (i64 t = begin, last; t < end; t = last) {
            last = given.end_of(t, begin, end, b);
            given.find_keys(here, own.keys.data, own.spare.data, t, last);
            given.count = 0;
            if (!was_short) given.add(here, own.keys.data, b, h, t, t, last);
            this->over_blocks([&](i64 column, i64 columns, const DeltaFunctions<T>& f) {
                if (!was_short) return run(own, given.chunks[0], feed, b, h, column, columns, f);
                this->steps(own, own.keys.data, b, h, t, last, column, columns, f,
                            [&](i64 at, const T* o) { copy(own.out + (at - t) * stride + column, o, columns); });
            });
            for (i64 at = t; at < last; ++at) copy_row(this->out(this->row(at, b), h), own.out + (at - t) * stride, D);
            was_short = (last - t) * M < short_chunk && last < end;
        }
    }

    void run(Part& own, i64 b, i64 h, i64 count) const {
        const DeltaChunks<T>& given = own.chunks;
        const i64 steps = length(rows, b), blocks = (stride + this->block - 1) / this->block;
        DeltaFeed<T> feed(*this, given.row, nullptr, given.steps, blocks * K * (2 * M + 1));
        DeltaStage<T> *here = &own.here, *next = &own.next;
        const auto end_of = [&](i64 t) {
            const i64 marked = t / this->in.chunk * this->in.chunk + this->in.chunk;
            return minimum(steps, minimum(marked, t + given.steps));
        };
        feed.start(*here, b, h, 0, end_of(0));
        feed.finish();
        bool was_short[most_heads] = {};
        this->over_chunks(own, b, h, count, [&](i64 begin, i64 end) {
            for (i64 t = begin; t < end; t = end_of(t))
                for (i64 i = 0; i < count; ++i) {
                    if (i + 1 < count) feed.start(*next, b, h + i + 1, t, end_of(t));
                    else feed.start(*next, b, h, end_of(t), end_of(end_of(t)));
                    own.S = own.states + i * K * stride;
                    run(own, *here, feed, b, h + i, t, end_of(t), was_short[i]);
                    feed.finish();
                    DeltaStage<T>* const done = here;
                    here = next;
                    next = done;
                }
        });
    }
};

template <class T>
void delta_forward_by_products(const DeltaForward& call) {
    const FlushDenormals flush;
    const DeltaProductsForward<T> work(call);
    using Part = DeltaProductsForwardPart<T>;
    work.template over_heads<Part>(call.run, delta_heads(work),
                                   [&](Part& own, i64 b, i64 h, i64 count) { work.run(own, b, h, count); });
}

}  // namespace orthornn::ORTHORNN_ISA
