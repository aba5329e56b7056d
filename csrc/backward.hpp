// The recurrence over time, backward, and with it every parameter gradient.
//
//     for t, last first:  g = grad_t + B'product;  delta_t = clip(phi'(g));  product = W'delta_t
//     rows of delta, C~ and the states before them are handed to RowSums a hundred at a time
//
// Where a sequence restarted before the step done last, its row of the product goes to dL/drestart and not on in time, and
// the state before that step was `restart`.
//
// Where there are fewer sequences than threads, delta and C~ are kept for all rows and summed afterwards by all threads.
#pragma once

#include "chain.hpp"
#include "compact_wy.hpp"
#include "compact_wy_single.hpp"
#include "dense.hpp"
#include "factors.hpp"
#include "inputs.hpp"
#include "rotations.hpp"

namespace orthornn::ORTHORNN_ISA {

// Multiply-adds of the sums over rows from which on threads that sleep during the chain are woken for them. Below, what
// is saved is less than what waking costs on a busy machine, and rows summed at once are still in the cache.
constexpr i64 sums_worth_waking_threads = 30000000;

// Bytes of states that the second cache level may still hold when the chain comes back to them. Of more, the rows are asked
// for a step ahead.
constexpr i64 nearby = 1 << 20;

// Sums over rows and steps that the chain itself makes.
template <class T>
struct ChainSums {
    Buffer<T> parameter;
    Buffer<double> wide, c, s;
    i64 waiting = 0;

    explicit ChainSums(i64 slots) : parameter(slots), wide(slots), c(slots), s(slots) {}
    void flush(i64 slots) {
        for (i64 i = 0; i < slots; ++i) wide[i] += static_cast<double>(parameter[i]);
        clear(parameter.data, slots);
        waiting = 0;
    }
    // dL/dc and dL/ds of one row: e is dL/d(B h).
    void add_base(const Layout& l, const T* e, const T* h) {
        const i64 half = l.n / 2, first = l.first, offset = l.offset;
        for (i64 i = 0; i < first; ++i) {
            const T partner = i < half ? h[first + i] : h[i];
            c[i] += static_cast<double>(e[i] * h[i]);
            s[i] += static_cast<double>(e[i] * partner);
        }
        for (i64 i = 0; i < half; ++i) {
            c[offset + i] += static_cast<double>(e[offset + i] * h[first + i]);
            s[offset + i] += static_cast<double>(e[offset + i] * h[i]);
        }
    }
};

template <class T, class Step>
struct BackwardWork {
    const Backward& call;
    const Chain<T>& chain;
    const typename Step::Shared& shared;
    bool sums_later;  // by all threads, after the chain
    // All rows of delta and C~, or null: then a part keeps those that it has not summed yet.
    T* delta;
    T* C_tilde;

    struct Part {
        Step step;
        Buffer<T> product, operand, scratch, delta, C_tilde;
        ChainSums<T> chain_sums;
        RowSums<T>& row_sums;
        Buffer<double> restart;  // sums of the product's rows where sequences restarted
    };

    // A step that is done: how many rows it had and where, and where they have delta and C~.
    struct Done {
        i64 t, active, row0;
        T *delta, *C_tilde;
    };

    // A block of sequences on its way back. The product of the step done last is made with the pass of the next.
    struct Block {
        const BackwardWork& work;
        Part& own;
        Range range;
        i64 stride;
        Done after;  // the step done last

        T* product(i64 i) const { return own.product + i * stride; }
        T* operand(i64 i) const { return own.operand + i * stride; }
        bool restarted(i64 i) const { return i < after.active && restarts(work.call.rows, after.row0 + i); }

        // Row i of the product of the step done last, where it is made row by row.
        void spread(i64 i) const {
            if constexpr (Step::row_by_row)
                for (i64 group = work.shared.groups; group-- > 0;) own.step.spread(i, group, operand(i), product(i));
        }

        // C~ of the step done last; `before` is where the states before it start.
        void finish(i64 before) const {
            const i64 N = work.call.rows.N, M = work.call.transition.M;
            own.step.solve(own.operand.data, stride, after.active, after.C_tilde);
            if constexpr (!Step::row_by_row) own.step.spread(own.operand.data, stride, after.active, own.product.data);
            if (!own.row_sums.wanted.any() || work.sums_later) return;
            for (i64 i = 0; i < after.active; ++i)
                work.append(own.row_sums, after.t, range.begin + i, after.row0 + i, before, after.delta + i * N,
                            after.C_tilde + i * M);
        }

        // dL/d(c, s) of that step, once its product is there.
        void finish_base(i64 before) const {
            const Backward& call = work.call;
            if (!call.grad_c || (after.t == 0 && !call.h0)) return;
            const i64 N = call.rows.N;
            const T* const from = static_cast<const T*>(after.t > 0 ? call.states : call.h0);
            const T* const h = from + ((after.t > 0 ? before : 0) + range.begin) * N;
            for (i64 i = 0; i < after.active; ++i)
                if (!restarted(i)) own.chain_sums.add_base(work.chain.layout, product(i), h + i * N);
        }

        // What reaches the state before that step from row i belongs to `restart`.
        void cut(i64 i) const {
            const Backward& call = work.call;
            const i64 slots = work.chain.layout.slots;
            T* const e = product(i);
            spread(i);
            if (call.grad_c && call.restart)
                own.chain_sums.add_base(work.chain.layout, e,
                                        static_cast<const T*>(call.restart) + (range.begin + i) * call.rows.N);
            for (i64 k = 0; k < (call.grad_restart ? slots : 0); ++k)
                own.restart[i * slots + k] += static_cast<double>(e[k]);
            clear(e, slots);
        }

        // dL/dh of a row as it comes from outside; `ends` where it is the last one of sequence i.
        const T* gradient(i64 row, i64 i, bool ends) const {
            const Backward& call = work.call;
            const i64 N = call.rows.N;
            const T* const all = static_cast<const T*>(call.grad_states);
            const T* const grad = all ? all + row * N : work.chain.zeros.data;
            if (!ends || !call.grad_last) return grad;
            const T* const last = static_cast<const T*>(call.grad_last) + (range.begin + i) * N;
            if (!all) return last;
            for (i64 n = 0; n < N; ++n) own.scratch[n] = grad[n] + last[n];
            return own.scratch.data;
        }

        // delta of row i of step `now`, from the product of the step done last; row by row, that is made on the way.
        void pass(const Done& now, i64 i) const {
            const i64 N = work.call.rows.N, row = now.row0 + i;
            const T* const grad = gradient(row, i, i >= after.active);
            const bool is_cut = restarted(i);
            if (is_cut) cut(i);
            const BackwardPass<T> rows{product(i), grad, static_cast<const T*>(work.call.saved) + row * N,
                                       now.delta + i * N, operand(i), own.chain_sums.parameter.data};
            const Chain<T>& chain = work.chain;
            if constexpr (Step::row_by_row) {
                const auto& shared = work.shared;
                for (i64 k = 0; k < shared.groups; ++k) {
                    const i64 group = shared.group(now.t, k);
                    if (i < after.active && !is_cut) own.step.spread(i, group, operand(i), product(i));
                    chain.functions.backward(chain.shared, rows, shared.begin(group), shared.end(group));
                    own.step.collect(i, group, operand(i), k == 0);
                }
            } else {
                chain.functions.backward(chain.shared, rows, 0, chain.layout.offset);
            }
        }

        // What the first step sends to the states before it.
        void leave() const {
            if (!after.active) return;
            finish(0);
            for (i64 i = 0; i < after.active; ++i) {
                if (restarted(i)) cut(i);
                else spread(i);
            }
            finish_base(0);
        }

        // dL/dh_0 and dL/drestart.
        void hand_over() const {
            const Chain<T>& chain = work.chain;
            const i64 N = work.call.rows.N, slots = chain.layout.slots;
            const auto write = [&](i64 i, void* to) {
                if (!to) return;
                chain.apply_base_transpose(product(i));
                from_slots(chain.layout, product(i), static_cast<T*>(to) + (range.begin + i) * N);
            };
            for (i64 i = 0; i < range.end - range.begin; ++i) {
                write(i, work.call.grad_h0);
                if (!work.call.grad_restart) continue;
                for (i64 k = 0; k < slots; ++k) product(i)[k] = static_cast<T>(own.restart[i * slots + k]);
                write(i, work.call.grad_restart);
            }
        }
    };

    void run(Range range, Part& own, i64 stride) const {
        const Rows& rows = call.rows;
        const i64 N = rows.N, M = call.transition.M, slots = chain.layout.slots, sequences = range.end - range.begin;
        const T* const saved = static_cast<const T*>(call.saved);
        const bool far = rows.R * N * static_cast<i64>(sizeof(T)) > nearby;
        const i64 steps = sequences > 0 ? length(rows, range.begin) : 0;
        clear(own.product.data, sequences * stride);
        clear(own.restart.data, call.grad_restart ? sequences * slots : 0);
        i64 first = 0, countdown = chain.steps_between_polls;
        for (i64 t = 0; t + 1 < steps; ++t) first += running(rows, t);
        Block block{*this, own, range, stride, {steps, 0, 0, nullptr, nullptr}};
        for (i64 t = steps - 1; t >= 0; --t) {
            const i64 active = minimum(running(rows, t), range.end) - range.begin, row0 = first + range.begin;
            const i64 previous = t > 0 ? first - running(rows, t - 1) : 0;
            if (block.after.active) block.finish(first);
            if (own.row_sums.count + active > rows_in_single_sum) own.row_sums.flush();
            const Done now{t, active, row0, delta ? delta + row0 * N : own.delta + own.row_sums.count * N,
                           C_tilde ? C_tilde + row0 * M : own.C_tilde + own.row_sums.count * M};
            for (i64 i = 0; i < active; ++i) {
                if (far && t > 0) prefetch(saved + (previous + range.begin + i) * N, N);
                block.pass(now, i);
            }
            block.finish_base(first);
            if (chain.functions.trained && (own.chain_sums.waiting += active) >= passes_in_single_sum)
                own.chain_sums.flush(slots);
            block.after = now;
            first = previous;
            if (--countdown == 0) {
                countdown = chain.steps_between_polls;
                if (should_stop(call.run.interrupt)) return;
            }
        }
        block.leave();
        own.row_sums.flush();
        if (chain.functions.trained) own.chain_sums.flush(slots);
        block.hand_over();
    }

    // Row b of step t; `previous` is where the rows of the step before start.
    void append(RowSums<T>& sums, i64 t, i64 b, i64 row, i64 previous, const T* delta_row, const T* C_row) const {
        const i64 N = call.rows.N;
        const T* const states = static_cast<const T*>(call.states);
        if (restarts(call.rows, row)) {
            sums.append(row, delta_row, C_row, call.restart ? static_cast<const T*>(call.restart) + b * N : nullptr, nullptr);
            return;
        }
        const T* const h0 = static_cast<const T*>(call.h0);
        const T* const state = t == 0 ? (h0 ? h0 + b * N : nullptr) : states ? states + (previous + b) * N : nullptr;
        const T* const z = t > 0 && !states ? static_cast<const T*>(call.saved) + (previous + b) * N : nullptr;
        sums.append(row, delta_row, C_row, state, z);
    }

    // Rows [r0, r1) of all, after the chain.
    void sum(RowSums<T>& sums, i64 r0, i64 r1) const {
        const Rows& rows = call.rows;
        i64 t = 0, first = 0, previous = 0;
        for (; t < rows.T && first + running(rows, t) <= r0; ++t) {
            previous = first;
            first += running(rows, t);
        }
        for (i64 r = r0; r < r1; ++r) {
            if (r - first == running(rows, t)) {
                previous = first;
                first = r;
                ++t;
            }
            append(sums, t, r - first, r, previous, delta + r * rows.N, C_tilde + r * call.transition.M);
            if (r % 4096 == 0 && should_stop(call.run.interrupt)) return;
        }
        sums.flush();
    }
};

// Writes what the parts have summed over rows.
template <class T>
void write_row_sums(const Backward& call, const Parts<RowSums<T>>& parts, const Buffer<std::int32_t>& places) {
    const i64 N = call.rows.N, I = call.input.size;
    RowSums<T>& total = *parts.at[0];
    for (int i = 1; i < parts.count; ++i) total.add(*parts.at[i]);
    const Wanted<T>& wanted = total.wanted;
    const i64 row = total.columns;
    T* const by_W = static_cast<T*>(call.grad_W);
    for (i64 i = 0; i < (wanted.weight ? N : 0); ++i) copy(by_W + i * N, total.outer + i * row, N);
    if (wanted.reflectors)
        reflector_gradient<T>(call, total.inner.data, total.inner_columns, total.beside.data, total.outer.data, row);
    T* const by_V = static_cast<T*>(call.grad_weight_ih);
    T* const by_b = static_cast<T*>(call.grad_bias);
    if (wanted.tokens) {
        for (i64 n = 0; n < N; ++n) {
            double sum = 0;
            for (i64 i = 0; i < I; ++i) {
                const double here = places[i] ? total.by_token[(places[i] - 1) * N + n] : 0;
                by_V[n * I + i] = static_cast<T>(here);
                sum += here;
            }
            if (by_b) by_b[n] = static_cast<T>(sum);
        }
        return;
    }
    for (i64 n = 0; n < N; ++n)
        for (i64 i = 0; i < wanted.inputs; ++i) by_V[n * I + i] = total.beside[(total.M + i) * row + n];
    if (by_b) copy(by_b, total.beside + (total.M + wanted.inputs) * row, N);
}

// Writes what the parts' chains have summed.
template <class T, class Part>
void write_chain_sums(const Backward& call, const Chain<T>& chain, const Parts<Part>& parts) {
    const Layout& l = chain.layout;
    Buffer<double> total(l.slots);
    Buffer<T> narrow(l.slots);
    const auto collect = [&](Buffer<double> ChainSums<T>::*which, void* out, bool half) {
        if (!out) return;
        clear(total.data, l.slots);
        for (int i = 0; i < parts.count; ++i)
            for (i64 k = 0; k < l.slots; ++k) total[k] += (parts.at[i]->chain_sums.*which)[k];
        for (i64 k = 0; k < l.slots; ++k) narrow[k] = static_cast<T>(total[k]);
        if (half) copy(static_cast<T*>(out), narrow.data, l.n / 2);
        else from_slots(l, narrow.data, static_cast<T*>(out));
    };
    if (chain.functions.trained) collect(&ChainSums<T>::wide, call.grad_parameter, chain.functions.pairs);
    collect(&ChainSums<T>::c, call.grad_c, false);
    collect(&ChainSums<T>::s, call.grad_s, false);
}

template <class T, class Step>
void run_backward(const Backward& call) {
    using Work = BackwardWork<T, Step>;
    using Part = typename Work::Part;
    const Rows& rows = call.rows;
    const i64 N = rows.N, M = call.transition.M;
    const Chain<T> chain(rows, call.transition, call.phi, call.clip);
    const Layout& l = chain.layout;
    const Plan p = plan(rows, call.run.threads, block_rows);
    const i64 stride = row_stride<T>(l.slots);
    typename Step::Shared shared;
    shared.prepare(call.transition, l, p.rows, true);
    const Wanted<T> wanted(call);
    const bool sums_later = wanted.any() && p.parts < call.run.threads &&
                            rows.R * N * (call.transition.U ? 2 * M : N) > sums_worth_waking_threads;
    Buffer<T> all_delta, all_C;
    if (sums_later && !call.delta) all_delta.reserve(rows.R * N);
    if (sums_later) all_C.reserve(rows.R * M);
    T* const delta = call.delta ? static_cast<T*>(call.delta) : all_delta.data;
    const Work work{call, chain, shared, sums_later, delta, all_C.data};

    Buffer<std::int32_t> places;
    const i64 tokens = wanted.tokens ? number_tokens(call.input, rows.R, places) : 0;
    const Parts<RowSums<T>> row_sums(sums_later ? call.run.threads : p.parts, [&](int) {
        return new RowSums<T>(call, chain.functions, chain.shared, chain.zeros.data, M, places.data, tokens);
    });
    const Parts<Part> parts(p.parts, [&](int i) {
        return new Part{Step(shared, p.rows), Buffer<T>(p.rows * stride), Buffer<T>(p.rows * stride),
                        Buffer<T>(maximum(l.slots, N)), {}, {}, ChainSums<T>(l.slots), *row_sums.at[i],
                        Buffer<double>(call.grad_restart ? p.rows * l.slots : 1)};
    });
    for (int i = 0; i < parts.count; ++i) {
        parts.at[i]->delta.reserve(delta ? 1 : rows_in_single_sum * N);
        parts.at[i]->C_tilde.reserve(sums_later ? 1 : rows_in_single_sum * M);
    }
    over_sequences(rows, call.run, p, parts, [&](Part& own, Range range) { work.run(range, own, stride); });
    if (sums_later)
        run_parts(row_sums.count, call.run.threads, [&](int i) {
            work.sum(*row_sums.at[i], rows.R * i / row_sums.count, rows.R * (i + 1) / row_sums.count);
        });
    if (should_stop(call.run.interrupt)) return;
    if (wanted.any()) write_row_sums(call, row_sums, places);
    write_chain_sums(call, chain, parts);
    if (rows.T == 0 && call.grad_h0) {
        if (call.grad_last) copy(static_cast<T*>(call.grad_h0), static_cast<const T*>(call.grad_last), rows.B * N);
        else clear(static_cast<T*>(call.grad_h0), rows.B * N);
    }
    if (rows.T == 0 && call.grad_restart) clear(static_cast<T*>(call.grad_restart), rows.B * N);
}

template <class T>
void backward(const Backward& call) {
    const FlushDenormals flush;
    if (call.transition.W) run_backward<T, DenseStep<T>>(call);
    else if (call.transition.rotations) run_backward<T, RotationStep<T>>(call);
    else if (call.rows.B <= single_rows) run_backward<T, SingleStep<T>>(call);
    else run_backward<T, CompactStep<T>>(call);
}

}  // namespace orthornn::ORTHORNN_ISA
