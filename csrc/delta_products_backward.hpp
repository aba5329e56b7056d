// The backward pass of delta_products.hpp. A block of columns goes forward through the chunks between two stored states, then
// back with G; sums over columns are collected from all blocks, and become gradients of keys, queries and gates at the end.
// A block in which something is not finite is done update by update.
#pragma once

#include "delta_products.hpp"

namespace orthornn::ORTHORNN_ISA {

template <class T>
struct DeltaProductsBackwardPart : DeltaBackwardPart<T> {
    DeltaChunks<T> chunks;
    const i64 all, wide_all;                            // rows of k and q of a chunk at most, and as whole vectors
    Buffer<T> starts, ends, zeros;                      // states before each chunk, and G there; of a block
    Buffer<T> alphas, arriving, turned, alphas_turned;  // of a block: alpha; [x; do]; and transposed
    Buffer<T> y;                                        // of all blocks, one after another
    DeltaStage<T> here, next;
    Buffer<bool> good;                                  // blocks that are finite
    Buffer<T> by_reads, by_writes, by_inner, by_kept;   // of each chunk, summed over blocks: S [x; do]', G alpha',
                                                        // [x; do] alpha', rows of G o S in lanes
    Buffer<double> solved, by_decay, by_since;
    Buffer<const T*> start;                                 // of each chunk, where its state begins
    Buffer<const T*> end;                                   // and G ends
    Buffer<T> rows, written, coefficients, decayed, since;  // of one chunk
    explicit DeltaProductsBackwardPart(const DeltaWork<T>& w)
        : DeltaBackwardPart<T>(w, delta_heads(w)),
          chunks(w),
          all(chunks.C + chunks.steps),
          wide_all(round_up(all, width<T>)),
          starts(chunks.limit * w.K * w.block),
          ends((chunks.limit + 1) * w.K * w.block),
          zeros(w.K * w.block),
          alphas(w.updates * w.block),
          arriving((w.updates + w.in.chunk) * w.block),
          turned(w.block * wide_all),
          alphas_turned(w.block * chunks.wide),
          y(w.updates * w.stride),
          here(w, w.in.chunk, chunks.row, true),
          next(w, w.in.chunk, chunks.row, true),
          good(w.stride / w.block + 1),
          by_reads(chunks.limit * w.K * wide_all),
          by_writes(chunks.limit * w.K * chunks.wide),
          by_inner(chunks.limit * all * chunks.wide),
          by_kept(chunks.limit * w.K * width<T>),
          solved(chunks.C * w.block),
          by_decay(chunks.C * chunks.C),
          by_since(chunks.C),
          start(chunks.limit),
          end(chunks.limit),
          rows(all * chunks.row),
          written(chunks.C * chunks.row),
          coefficients(maximum(all * wide_all, w.K)),
          decayed(chunks.by_key ? chunks.C * chunks.C * chunks.row : 1),
          since(chunks.by_key ? (chunks.C + 1) * chunks.row : 1) {}
};

template <class T>
struct DeltaProductsBackward : DeltaBackwardWork<T> {
    using Base = DeltaBackwardWork<T>;
    using Base::block, Base::call, Base::D, Base::H, Base::in, Base::K, Base::M;
    using Part = DeltaProductsBackwardPart<T>;

    explicit DeltaProductsBackward(const DeltaBackward& c) : Base(c) {}

    T* y(Part& own, i64 column) const { return own.y + column * this->updates; }

    // States, alpha and p of a block of columns; false where something is not finite.
    bool forward(Part& own, DeltaFeed<T>& feed, i64 column, i64 columns) const {
        const DeltaChunks<T>& given = own.chunks;
        const auto meanwhile = [&](i64 count) { feed(count); };
        for (i64 i = 0; i < given.count; ++i) {
            const DeltaChunk<T>& c = given.chunks[i];
            T *const p = own.p + c.first * columns, *const alpha = own.alphas + c.first * columns;
            const T* const from = c.fresh ? this->columns(own.restart, column).at
                                  : i     ? own.starts + i * K * block
                                          : this->columns(own.begin, column).at;
            own.start[i] = from;
            delta_product<T>(c.n, columns, {K, c.reads, given.row, 1, from, columns, nullptr, 0, p, columns}, meanwhile);
            delta_solves<T>[columns / width<T> - 1].down(*this, c, given.C, column, p, alpha, own.solved.data);
            if (finite_rows(alpha, c.n, columns) < c.n) return false;
            if (i + 1 < given.count && !given.chunks[i + 1].fresh)
                delta_beyond(c.kept, K, columns, from, c.n, c.writes, given.row, alpha, own.starts + (i + 1) * K * block,
                             meanwhile);
        }
        return true;
    }

    // G, y and x; false where something is not finite. ends[i] is G where chunk i begins.
    bool back(Part& own, const DeltaStage<T>& stage, DeltaFeed<T>& feed, i64 column, i64 columns) const {
        const DeltaChunks<T>& given = own.chunks;
        const auto meanwhile = [&](i64 count) { feed(count); };
        const T* G = this->columns(own.G, column).at;
        for (i64 i = given.count - 1; i >= 0; --i) {
            const DeltaChunk<T>& c = given.chunks[i];
            T *const y = this->y(own, column) + c.first * columns, *const x =
                                                                       own.arriving + (c.first + c.first / M) * columns;
            T* const grad_o = x + c.n * columns;
            for (i64 t = 0; t < c.steps; ++t)
                copy_row(grad_o + t * columns, stage.o + (c.first / M + t) * this->stride + column, columns);
            delta_product<T>(c.n, columns, {K, c.writes, given.row, 1, G, columns, nullptr, 0, y, columns}, meanwhile);
            for (i64 j = 0; j < c.n; j += rows_at_once) {  // which no earlier step reads
                const i64 t = j / M;
                delta_product<T>(minimum<i64>(rows_at_once, c.n - j), columns,
                                 {c.steps - t, c.seen + t * given.wide + j, 1, given.wide, grad_o + t * columns, columns,
                                  y + j * columns, columns, y + j * columns, columns});
            }
            delta_solves<T>[columns / width<T> - 1].up(*this, c, given.C, column, y, x, own.solved.data);
            if (finite_rows(x, c.n, columns) < c.n) return false;
            own.end[i] = G;
            T* const to = own.ends + i * K * block;
            delta_beyond(c.kept, K, columns, G, c.rows(), c.reads, given.row, x, to, meanwhile);
            G = c.fresh ? own.zeros.data : to;
        }
        return true;
    }

    // What a block of columns adds to the gradients, once all of it is known to be finite. Sums begin with the first block.
    void add(Part& own, DeltaFeed<T>& feed, i64 b, i64 h, i64 column, i64 columns, bool first) const {
        const auto before = [&](const T* sums) { return first ? nullptr : sums; };
        const DeltaChunks<T>& given = own.chunks;
        const auto meanwhile = [&](i64 count) { feed(count); };
        const i64 count = minimum(columns, D - column);
        for (i64 i = 0; i < given.count; ++i) {
            const DeltaChunk<T>& c = given.chunks[i];
            const T *const p = own.p + c.first * columns, *const y = this->y(own, column) + c.first * columns;
            const T *const alpha = own.alphas + c.first * columns, *const x =
                                                                       own.arriving + (c.first + c.first / M) * columns;
            for (i64 j = 0; j < c.n; ++j) {
                const T* const v = c.values + j * this->stride + column;
                Vector<T> by_v = zero<T>(), by_p = zero<T>();
                for (i64 k = 0; k < columns; k += width<T>) {
                    const Vector<T> from = load<T>(y + j * columns + k);
                    by_v = fma(load<T>(v + k), from, by_v);
                    by_p = fma(load<T>(p + j * columns + k), from, by_p);
                }
                own.by_v[c.first + j] -= static_cast<double>(sum_of_lanes(by_v));
                own.by_p[c.first + j] -= static_cast<double>(sum_of_lanes(by_p));
            }
            const i64 all = own.wide_all, wide = given.wide;
            if (c.rows() < all) clear(own.turned.data, columns * all);
            if (c.n < wide) clear(own.alphas_turned.data, columns * wide);
            delta_transpose(x, c.rows(), columns, columns, own.turned.data, all);
            delta_transpose(alpha, c.n, columns, columns, own.alphas_turned.data, wide);
            T *const by_reads = own.by_reads + i * K * all, *const by_writes = own.by_writes + i * K * wide;
            T* const by_inner = own.by_inner + i * own.all * wide;
            delta_product<T>(K, all,
                             {columns, own.start[i], columns, 1, own.turned.data, all, before(by_reads), all, by_reads, all},
                             meanwhile);
            const auto with_alphas = [&](const T* rows, T* sums) {
                return TileArguments<T>{columns,      rows, columns, 1,   own.alphas_turned.data, wide,
                                        before(sums), wide, sums,    wide};
            };
            delta_product<T>(K, wide, with_alphas(own.end[i], by_writes), meanwhile);
            delta_product<T>(c.rows(), wide, with_alphas(x, by_inner));
            if (given.gated)
                for (i64 k = 0; k < K; ++k) {
                    T* const lanes = own.by_kept + (i * K + k) * width<T>;
                    Vector<T> sum = load(lanes);
                    for (i64 j = k * columns; j < (k + 1) * columns; j += width<T>)
                        sum = fma(load<T>(own.start[i] + j), load<T>(own.end[i] + j), sum);
                    store<T>(lanes, sum);
                }
            if (c.fresh) this->cut(b, h, {own.ends + i * K * block, columns}, column, count, columns);
        }
        copy(this->columns(own.G, column).at, own.ends.data, K * columns);
    }

    // dL/dv, a row at a time.
    void write_values(Part& own, const DeltaChunk<T>& c) const {
        for (i64 j = 0; j < c.n; ++j)
            for (i64 column = 0; column < this->stride; column += block) {
                if (!own.good[column / block]) continue;
                const i64 columns = minimum(block, this->stride - column), count = minimum(columns, D - column);
                T* const from = y(own, column) + (c.first + j) * columns;
                for (i64 x = 0; x < columns; x += width<double>)
                    store_double(from + x, broadcast(-c.by_value[j]) * load_double(from + x));
                copy_row(static_cast<T*>(call.grad_v) + c.at[j] * D + column, from, count);
            }
    }

    // From the sums of a chunk over all columns to the gradients of its keys, queries and gates.
    void finish(Part& own, i64 i, i64 b, i64 h) const {
        const DeltaChunks<T>& given = own.chunks;
        const DeltaChunk<T>& c = given.chunks[i];
        const i64 all = own.wide_all, wide = given.wide;
        if (call.grad_v) write_values(own, c);
        delta_transpose(own.by_reads + i * K * all, K, c.rows(), all, own.rows.data, given.row);
        delta_transpose(own.by_writes + i * K * wide, K, c.n, wide, own.written.data, given.row);
        const T *const by_inner = own.by_inner + i * own.all * wide, *const by_kept = own.by_kept + i * K * width<T>;
        if (given.by_key) finish_by_key(own, c, by_inner, by_kept, b, h);
        else finish_by_head(own, c, by_inner, by_kept, b, h);
    }

    void finish_by_head(Part& own, const DeltaChunk<T>& c, const T* by_inner, const T* by_kept, i64 b, i64 h) const {
        const DeltaChunks<T>& given = own.chunks;
        const i64 all = own.wide_all, wide = given.wide, row = given.row;
        if (given.gated) finish_gates(own, c, by_inner, by_kept, b, h);
        const auto decay = [&](i64 j, i64 i) { return static_cast<T>(c.decay[j * given.C + i]); };
        T* const factors = own.coefficients.data;  // of the rows of k and q in the gradient of each
        clear(factors, c.rows() * all);
        for (i64 r = 0; r < c.rows(); ++r) {
            const i64 j = r < c.n ? r : (r - c.n + 1) * M - 1;
            for (i64 i = 0; i < (r < c.n ? j : j + 1); ++i)
                factors[r * all + i] = factors[i * all + r] = -by_inner[r * wide + i] * decay(j, i);
            T* const to = own.rows + r * row;
            for (i64 x = 0; x < K; ++x) to[x] *= static_cast<T>(c.since[j]);
            if (r < c.n)
                for (i64 x = 0; x < K; ++x) to[x] -= decay(c.n - 1, r) * own.written[r * row + x];
        }
        const i64 numbers = round_up(K, width<T>);
        delta_product<T>(c.rows(), numbers, {c.n, factors, all, 1, c.k, row, own.rows.data, row, own.rows.data, row});
        delta_product<T>(c.n, numbers,  // a query meets no other
                         {c.steps, factors + c.n, all, 1, c.q, row, own.rows.data, row, own.rows.data, row});
        for (i64 r = 0; r < c.rows(); ++r) {
            T* const to = r < c.n ? own.by_k + (c.first + r) * K : own.by_q + (c.first / M + r - c.n) * K;
            for (i64 x = 0; x < K; ++x) to[x] += own.rows[r * row + x];
        }
    }

    // Of one gate per head: backwards through D_l = g_l D_{l-1} and a_l = g_l a_{l-1}.
    void finish_gates(Part& own, const DeltaChunk<T>& c, const T* by_inner, const T* by_kept, i64 b, i64 h) const {
        const DeltaChunks<T>& given = own.chunks;
        const i64 C = given.C, wide = given.wide, row = given.row, last = c.n - 1;
        double *const by_decay = own.by_decay.data, *const by_since = own.by_since.data;
        clear(by_decay, c.n * C);
        clear(by_since, c.n);
        for (i64 r = 0; r < c.rows(); ++r) {
            const i64 j = r < c.n ? r : (r - c.n + 1) * M - 1;
            for (i64 i = 0; i < j; ++i)
                by_decay[j * C + i] -= static_cast<double>(by_inner[r * wide + i]) * c.inner[r * given.wide_double + i];
            by_since[j] += delta_dot(own.rows + r * row, r < c.n ? c.k + r * row : c.q + (r - c.n) * row, K);
        }
        for (i64 i = 0; i < last; ++i) by_decay[last * C + i] -= delta_dot(own.written + i * row, c.k + i * row, K);
        for (i64 x = 0; x < K; ++x)
            by_since[last] += static_cast<double>(sum_of_lanes(load(by_kept + x * width<T>)));
        for (i64 l = last; l >= 0; --l) {
            double found = by_since[l] * (l ? c.since[l - 1] : 1);
            for (i64 i = 0; i < l; ++i) found += by_decay[l * C + i] * c.decay[(l - 1) * C + i];
            double g = 1;
            if (l % M == 0) {
                own.by_gate[(c.first + l) / M] += static_cast<T>(found);
                g = static_cast<double>(*this->gate(this->row(c.begin + l / M, b), h).factors);
            }
            for (i64 i = 0; i < l - 1; ++i) by_decay[(l - 1) * C + i] += g * by_decay[l * C + i];
            if (l) by_since[l - 1] += g * by_since[l];
        }
    }

    // Of a gate per key entry: backwards through d = g o d, the keys with what the gates left of them, and a = g o a.
    void finish_by_key(Part& own, const DeltaChunk<T>& c, const T* by_inner, const T* by_kept, i64 b, i64 h) const {
        const DeltaChunks<T>& given = own.chunks;
        const i64 wide = given.wide, row = given.row, level = given.C * row;
        for (i64 x = 0; x < K; ++x) own.since[x] = 1;
        for (i64 l = 0; l < c.n; ++l) {
            given.decay_keys(c, b, h, l, l ? own.decayed + (l - 1) * level : nullptr, own.decayed + l * level);
            const Gate<T> gate = this->gate(this->row(c.begin + l / M, b), h);
            for (i64 x = 0; x < K; ++x) own.since[(l + 1) * row + x] = own.since[l * row + x] * (l % M ? T(1) : gate.of(x));
        }
        T* const by_decayed = own.written.data;
        for (i64 i = 0; i < c.n * row; ++i) by_decayed[i] = -by_decayed[i];
        T* const by_since = own.coefficients.data;
        for (i64 x = 0; x < K; ++x) by_since[x] = sum_of_lanes(load(by_kept + x * width<T>));
        const auto add_row = [&](T factor, const T* from, T* to) {
            for (i64 x = 0; x < K; ++x) to[x] += factor * from[x];
        };
        const auto visit = [&](i64 r, i64 l, i64 before, T* to) {
            const T *const by_read = own.rows + r * row, *const own_row = r < c.n ? c.k + r * row : c.q + (r - c.n) * row,
                           *const a = own.since + (l + 1) * row;
            for (i64 i = 0; i < before; ++i) {
                const T factor = -by_inner[r * wide + i];
                add_row(factor, own_row, by_decayed + i * row);
                add_row(factor, own.decayed + l * level + i * row, to);
            }
            for (i64 x = 0; x < K; ++x) {
                by_since[x] += by_read[x] * own_row[x];
                to[x] += by_read[x] * a[x];
            }
        };
        for (i64 l = c.n - 1; l >= 0; --l) {
            T* const by_k = own.by_k + (c.first + l) * K;
            if (l % M == M - 1) visit(c.n + l / M, l, l + 1, own.by_q + (c.first + l) / M * K);
            visit(l, l, l, by_k);
            add_row(1, by_decayed + l * row, by_k);
            if (l % M) continue;
            const T* const g = this->gate(this->row(c.begin + l / M, b), h).factors;
            T* const by_gate = own.by_gate + (c.first + l) / M * K;
            for (i64 x = 0; x < K; ++x) {
                by_gate[x] += by_since[x] * own.since[l * row + x];
                by_since[x] *= g[x];
            }
            for (i64 i = 0; i < l; ++i) {
                const T* const before = own.decayed + (l - 1) * level + i * row;
                T* const at = by_decayed + i * row;
                for (i64 x = 0; x < K; ++x) {
                    by_gate[x] += at[x] * before[x];
                    at[x] *= g[x];
                }
            }
        }
    }

    void run(Part& own, i64 b, i64 first, i64 count) const {
        DeltaChunks<T>& given = own.chunks;
        const i64 steps = length(this->rows, b), blocks = (this->stride + block - 1) / block;
        DeltaFeed<T> feed(*this, given.row, static_cast<const T*>(call.grad_out), in.chunk, blocks * K * (6 * M + 2));
        DeltaStage<T> *here = &own.here, *next = &own.next;
        feed.start(*here, b, first, (steps - 1) / in.chunk * in.chunk, steps);
        feed.finish();
        Base::run(own, b, first, count, [&](i64 h, i64 begin, i64 end) {
            if (h + 1 < first + count) feed.start(*next, b, h + 1, begin, end);
            else feed.start(*next, b, first, maximum<i64>(begin - in.chunk, 0), begin);
            given.find_keys(*here, own.keys.data, own.spare.data, begin, end);
            given.count = 0;
            for (i64 t = begin, last; t < end; t = last) {
                last = given.end_of(t, begin, end, b);
                given.add(*here, own.keys.data, b, h, begin, t, last);
            }
            const bool are_short = given.count * short_chunk > maximum<i64>((end - begin) * M, short_chunk);
            clear(own.by_kept.data, given.count * K * width<T>);
            bool any = false;
            this->over_blocks([&](i64 column, i64 columns, const DeltaFunctions<T>& f) {
                bool& good = own.good[column / block];
                good = !are_short && forward(own, feed, column, columns) && back(own, *here, feed, column, columns);
                if (good) {
                    add(own, feed, b, h, column, columns, !any);
                    any = true;
                    return;
                }
                this->repeat(own, b, h, begin, end, column, columns, f);
                this->reverse(own, b, h, begin, end, column, columns, f);
            });
            for (i64 i = 0; any && i < given.count; ++i) finish(own, i, b, h);
            feed.finish();
            DeltaStage<T>* const done = here;
            here = next;
            next = done;
        });
    }
};

template <class T>
void delta_backward_by_products(const DeltaBackward& call) {
    const FlushDenormals flush;
    const DeltaProductsBackward<T> work(call);
    using Part = DeltaProductsBackwardPart<T>;
    work.template over_heads<Part>(call.run, delta_heads(work),
                                   [&](Part& own, i64 b, i64 h, i64 count) { work.run(own, b, h, count); });
}

}  // namespace orthornn::ORTHORNN_ISA
