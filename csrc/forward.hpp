// The recurrence over time, forward.
//
//     for t:  product = W operand;  z = product + x_t;  h_t = phi(z);  operand = B h_t
//
// Where a sequence restarts before step t, its operand is replaced by B restart, which is computed once (and with it what a
// step has added up of it already): a reset costs one copy of a row.
//
// Step is DenseStep, CompactStep, SingleStep or RotationStep.
#pragma once

#include "chain.hpp"
#include "compact_wy.hpp"
#include "compact_wy_single.hpp"
#include "dense.hpp"
#include "inputs.hpp"
#include "rotations.hpp"

namespace orthornn::ORTHORNN_ISA {

template <class T, class Step>
struct ForwardWork {
    const Forward& call;
    Chain<T> chain;
    InputRows<T> inputs;
    typename Step::Shared shared;

    // What a call does not keep is written to `here`, over and over.
    struct Here {
        T *states, *saved, *h_tilde;
    };

    // Row i of the operand is B h of row b of `from`.
    void enter(const void* from, i64 b, Step& step, i64 i, T* h) const {
        if (from) to_slots(chain.layout, static_cast<const T*>(from) + b * call.rows.N, h);
        else clear(h, chain.layout.slots);
        chain.apply_base(h);
        if constexpr (Step::row_by_row)
            for (i64 k = 0; k < shared.groups; ++k) step.collect(i, k, h, k == 0);
    }

    void run(Range range, Step& step, T* product, T* operand, T* restart, T* scratch, Here here, i64 stride) {
        const Rows& rows = call.rows;
        const i64 N = rows.N, slots = chain.layout.slots;
        for (i64 b = range.begin; b < range.end; ++b) {
            const i64 i = b - range.begin;
            T* const h = operand + i * stride;
            if (rows.resets) {
                enter(call.restart, b, step, i, h);
                copy(restart + i * stride, h, slots);
                if constexpr (Step::row_by_row) step.remember(i);
            }
            enter(call.h0, b, step, i, h);
        }
        T* const states = static_cast<T*>(call.states);
        T* const saved = static_cast<T*>(call.saved);
        T* const h_tilde = static_cast<T*>(call.h_tilde);
        i64 first = 0, countdown = chain.steps_between_polls;
        for (i64 t = 0; t < rows.T; ++t) {
            const i64 all = running(rows, t), active = minimum(all, range.end) - range.begin;
            if (active <= 0) break;
            for (i64 i = 0; i < (rows.resets ? active : 0); ++i)
                if (restarts(rows, first + range.begin + i)) {
                    copy(operand + i * stride, restart + i * stride, slots);
                    if constexpr (Step::row_by_row) step.recall(i);
                }
            step.solve(operand, stride, active,
                       h_tilde ? h_tilde + (first + range.begin) * call.transition.M : here.h_tilde);
            if constexpr (!Step::row_by_row) step.spread(operand, stride, active, product);
            for (i64 i = 0; i < active; ++i) {
                const i64 row = first + range.begin + i;
                ForwardPass<T> pass{product + i * stride, nullptr, nullptr,
                                    states ? states + row * N : here.states + i * N,
                                    saved ? saved + row * N : here.saved,
                                    operand + i * stride};
                inputs.row(row, scratch, pass.x0, pass.x1);
                if constexpr (Step::row_by_row) {
                    for (i64 k = 0; k < shared.groups; ++k) {
                        const i64 group = shared.group(t, k);
                        step.spread(i, group, operand + i * stride, product + i * stride);
                        chain.functions.forward(chain.shared, pass, shared.begin(group), shared.end(group));
                        step.collect(i, group, operand + i * stride, k == 0);
                    }
                } else {
                    chain.functions.forward(chain.shared, pass, 0, chain.layout.offset);
                }
            }
            if (call.last) {
                const i64 next = t + 1 < rows.T ? running(rows, t + 1) : 0;
                for (i64 i = maximum<i64>(next - range.begin, 0); i < active; ++i) {
                    const i64 row = first + range.begin + i;
                    copy(static_cast<T*>(call.last) + (range.begin + i) * N,
                         states ? states + row * N : here.states + i * N, N);
                }
            }
            first += all;
            if (--countdown == 0) {
                countdown = chain.steps_between_polls;
                if (should_stop(call.run.interrupt)) return;
            }
        }
    }
};

template <class T, class Step>
void run_forward(const Forward& call) {
    ForwardWork<T, Step> work{call, Chain<T>(call.rows, call.transition, call.phi, 0), {}, {}};
    const Layout& l = work.chain.layout;
    const Plan p = plan(call.rows, call.run.threads, block_rows);
    const i64 stride = row_stride<T>(l.slots);
    work.inputs.prepare(call.input, l, call.rows.R);
    work.shared.prepare(call.transition, l, p.rows, false);
    struct Part {
        Step step;
        Buffer<T> product, operand, restart, scratch, states, saved, h_tilde;
    };
    const Parts<Part> parts(p.parts, [&](int) {
        return new Part{Step(work.shared, p.rows), Buffer<T>(p.rows * stride),
                        Buffer<T>(p.rows * stride), Buffer<T>(call.rows.resets ? p.rows * stride : 1), Buffer<T>(l.slots),
                        Buffer<T>(call.states ? 1 : p.rows * call.rows.N), Buffer<T>(call.saved ? 1 : call.rows.N),
                        Buffer<T>(call.h_tilde ? 1 : p.rows * call.transition.M)};
    });
    if constexpr (Step::row_by_row)
        if (call.rows.resets)
            for (int i = 0; i < parts.count; ++i) parts.at[i]->step.expect_restarts();
    over_sequences(call.rows, call.run, p, parts, [&](Part& own, Range range) {
        work.run(range, own.step, own.product.data, own.operand.data, own.restart.data, own.scratch.data,
                 {own.states.data, own.saved.data, own.h_tilde.data}, stride);
    });
    if (call.rows.T == 0 && call.last) {
        const i64 count = call.rows.B * call.rows.N;
        if (call.h0) copy(static_cast<T*>(call.last), static_cast<const T*>(call.h0), count);
        else clear(static_cast<T*>(call.last), count);
    }
}

template <class T>
void forward(const Forward& call) {
    const FlushDenormals flush;
    if (call.transition.W) run_forward<T, DenseStep<T>>(call);
    else if (call.transition.rotations) run_forward<T, RotationStep<T>>(call);
    else if (call.rows.B <= single_rows) run_forward<T, SingleStep<T>>(call);
    else run_forward<T, CompactStep<T>>(call);
}

}  // namespace orthornn::ORTHORNN_ISA
