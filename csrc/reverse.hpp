// The recurrence backwards over time, for orthogonal W and a phi that keeps the norm: what `forward` gave, from the last
// state of each sequence.
//
//     for t, last first:  h_t = B'product (or the last state);  z = phi^-1(h_t);  operand = z - x_t;  product = Q'operand
//
// with Q = I - U S U', so that Q'operand = B h_{t-1}. On the way S'U'operand = -h~_t (kernels/compact_wy/README.md).
#pragma once

#include "chain.hpp"
#include "compact_wy.hpp"
#include "compact_wy_single.hpp"
#include "dense.hpp"
#include "inputs.hpp"
#include "rotations.hpp"

namespace orthornn::ORTHORNN_ISA {

template <class T, class Step>
struct ReverseWork {
    const Reverse& call;
    Chain<T> chain;
    InputRows<T> inputs;
    typename Step::Shared shared;

    void run(Range range, Step& step, T* product, T* operand, T* scratch, i64 stride, int part) {
        const Rows& rows = call.rows;
        const i64 N = rows.N, M = call.transition.M;
        T* const states = static_cast<T*>(call.states);
        T* const kept = static_cast<T*>(call.kept);
        T* const h_tilde = static_cast<T*>(call.h_tilde);
        const T* const last = static_cast<const T*>(call.last);
        const i64 steps = range.begin < range.end ? length(rows, range.begin) : 0;
        i64 first = 0, countdown = chain.steps_between_polls, after = 0;  // how many rows the step done last had
        for (i64 t = 0; t + 1 < steps; ++t) first += running(rows, t);
        for (i64 t = steps - 1; t >= 0; --t) {
            const i64 active = minimum(running(rows, t), range.end) - range.begin, row0 = first + range.begin;
            for (i64 i = 0; i < active; ++i) {
                const i64 row = row0 + i;
                T* const d = operand + i * stride;
                ReversePass<T> pass{product + i * stride, i < after ? nullptr : last + (range.begin + i) * N, nullptr,
                                    nullptr, states + row * N, kept ? kept + row * N : nullptr, d};
                inputs.row(row, scratch, pass.x0, pass.x1);
                if constexpr (Step::row_by_row) {
                    for (i64 k = 0; k < shared.groups; ++k) {
                        const i64 group = shared.group(t, k);
                        if (i < after) step.spread(i, group, d, product + i * stride);
                        chain.functions.reverse(chain.shared, pass, shared.begin(group), shared.end(group));
                        step.collect(i, group, d, k == 0);
                    }
                } else {
                    chain.functions.reverse(chain.shared, pass, 0, chain.layout.offset);
                }
            }
            T* const C_tilde = h_tilde + row0 * M;
            step.solve(operand, stride, active, C_tilde);
            for (i64 k = 0; k < active * M; ++k) C_tilde[k] = -C_tilde[k];
            if constexpr (!Step::row_by_row) step.spread(operand, stride, active, product);
            after = active;
            first -= t > 0 ? running(rows, t - 1) : 0;
            if (--countdown == 0) {
                countdown = chain.steps_between_polls;
                if (should_stop(call.run.interrupt, part)) return;
            }
        }
        T* const before = static_cast<T*>(call.before);
        for (i64 i = 0; i < range.end - range.begin; ++i) {
            if constexpr (Step::row_by_row)
                for (i64 group = shared.groups; group-- > 0;)
                    step.spread(i, group, operand + i * stride, product + i * stride);
            chain.apply_base_transpose(product + i * stride);
            from_slots(chain.layout, product + i * stride, before + (range.begin + i) * N);
        }
    }
};

template <class T, class Step>
void run_reverse(const Reverse& call) {
    ReverseWork<T, Step> work{call, Chain<T>(call.rows, call.transition, call.phi, 0), {}, {}};
    const Layout& l = work.chain.layout;
    const Plan p = plan(call.rows, call.run.threads, block_rows);
    const i64 stride = row_stride<T>(l.slots);
    work.inputs.prepare(call.input, l, call.rows.R);
    work.shared.prepare(call.transition, l, p.rows, true);
    struct Part {
        Step step;
        Buffer<T> product, operand, scratch;
    };
    const Parts<Part> parts(p.parts, [&](int) {
        return new Part{Step(work.shared, p.rows), Buffer<T>(p.rows * stride), Buffer<T>(p.rows * stride),
                        Buffer<T>(l.slots)};
    });
    over_sequences(call.rows, call.run, p, parts, [&](Part& own, Range range, int index) {
        work.run(range, own.step, own.product.data, own.operand.data, own.scratch.data, stride, index);
    });
}

template <class T>
void reverse(const Reverse& call) {
    if (call.transition.W) run_reverse<T, DenseStep<T>>(call);
    else if (call.transition.rotations) run_reverse<T, RotationStep<T>>(call);
    else if (call.rows.B <= single_rows) run_reverse<T, SingleStep<T>>(call);
    else run_reverse<T, CompactStep<T>>(call);
}

}  // namespace orthornn::ORTHORNN_ISA
