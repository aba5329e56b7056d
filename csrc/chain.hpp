// The recurrence over time, forward and backward, for one range of sequences at a time.
//
//     forward:   for t: product = W operand;  z = product + x_t;  h_t = phi(z);  operand = B h_t
//     backward:  for t, last first: g = grad_t + B'product;  delta_t = clip(phi'(g));  product = W'delta_t
//
// A range of sequences runs to its end without waiting for the others; operand and product rows stay in its thread's
// cache, and nothing is allocated between the steps. Step is DenseStep, CompactStep or SingleStep.
#pragma once

#include "compact_wy.hpp"
#include "compact_wy_single.hpp"
#include "dense.hpp"
#include "inputs.hpp"
#include "passes.hpp"

namespace orthornn::ORTHORNN_ISA {

constexpr i64 block_rows = 4 * rows_at_once;
constexpr i64 passes_in_single_sum = 64;  // rows whose parameter gradients are added in T before they go to float64

// Everything the threads share.
template <class T>
struct Chain {
    Layout layout;
    PassFunctions<T> functions;
    PassShared<T> shared;
    bool base;
    Buffer<T> parameter, c, s, zeros;
    i64 steps_between_polls;

    Chain(const Rows& rows, const Transition& w, const Phi& phi, double clip) {
        base = w.c != nullptr;
        layout = ORTHORNN_ISA::layout<T>(rows.N, base || acts_on_pairs(phi.code));
        functions = pass_functions<T>(phi.code, layout.paired, base);
        parameter.reset(layout.slots);
        zeros.reset(maximum(layout.slots, rows.N));
        if (functions.trained) {
            const T* p = static_cast<const T*>(phi.parameter);
            if (functions.pairs) copy(parameter.data, p, rows.N / 2);
            else to_slots(layout, p, parameter.data);
        }
        if (base) {
            c.reset(layout.slots);
            s.reset(layout.slots);
            to_slots(layout, static_cast<const T*>(w.c), c.data);
            to_slots(layout, static_cast<const T*>(w.s), s.data);
            if (rows.N % 2) {  // the middle unit is its own partner
                const i64 middle = rows.N / 2;
                c[middle] += s[middle];
                s[middle] = 0;
            }
        }
        shared = {layout, parameter.data, c.data, s.data, static_cast<T>(phi.slope), static_cast<T>(clip)};
        const i64 work = block_rows * (w.W ? rows.N * rows.N : 2 * rows.N * w.M + w.M * w.M) + block_rows * rows.N * 8;
        steps_between_polls = maximum<i64>(1, 4000000 / work);
    }
    // operand = B h of one row in slots, in place.
    void apply_base(T* h) const {
        if (!base) return;
        for (i64 i = 0; i < layout.offset; ++i) {
            const T a = h[i], b = h[layout.offset + i];
            h[i] = c[i] * a + s[i] * b;
            h[layout.offset + i] = c[layout.offset + i] * b + s[layout.offset + i] * a;
        }
    }
    void apply_base_transpose(T* e) const {
        if (!base) return;
        for (i64 i = 0; i < layout.offset; ++i) {
            const T a = e[i], b = e[layout.offset + i];
            e[i] = c[i] * a + s[layout.offset + i] * b;
            e[layout.offset + i] = c[layout.offset + i] * b + s[i] * a;
        }
    }
};

template <class T, class Step>
struct ForwardWork {
    const Forward& call;
    Chain<T> chain;
    InputRows<T> inputs;
    typename Step::Shared shared;

    void run(Range range, Step& step, T* product, T* operand, T* scratch, T* states_here, i64 stride, int part) {
        const Rows& rows = call.rows;
        const i64 N = rows.N;
        for (i64 b = range.begin; b < range.end; ++b) {
            T* h = operand + (b - range.begin) * stride;
            if (call.h0) to_slots(chain.layout, static_cast<const T*>(call.h0) + b * N, h);
            else clear(h, chain.layout.slots);
            chain.apply_base(h);
        }
        T* const states = static_cast<T*>(call.states);
        T* const kept = static_cast<T*>(call.kept);
        i64 first = 0, countdown = chain.steps_between_polls;
        for (i64 t = 0; t < rows.T; ++t) {
            const i64 all = running(rows, t), active = minimum(all, range.end) - range.begin;
            if (active <= 0) break;
            step.advance(operand, stride, active, product, first + range.begin);
            for (i64 i = 0; i < active; ++i) {
                const i64 row = first + range.begin + i;
                ForwardPass<T> pass{product + i * stride, nullptr, nullptr,
                                    states ? states + row * N : states_here + i * N,
                                    kept ? kept + row * N : nullptr, operand + i * stride};
                inputs.row(row, scratch, pass.x0, pass.x1);
                chain.functions.forward(chain.shared, pass);
            }
            if (call.last) {
                const i64 next = t + 1 < rows.T ? running(rows, t + 1) : 0;
                for (i64 i = maximum<i64>(next - range.begin, 0); i < active; ++i) {
                    const i64 row = first + range.begin + i;
                    copy(static_cast<T*>(call.last) + (range.begin + i) * N,
                         states ? states + row * N : states_here + i * N, N);
                }
            }
            first += all;
            if (--countdown == 0) {
                countdown = chain.steps_between_polls;
                if (should_stop(call.run.interrupt, part)) return;
            }
        }
    }
};

template <class T, class Step>
struct BackwardWork {
    const Backward& call;
    Chain<T> chain;
    typename Step::Shared shared;

    // dL/dc and dL/ds of one row: e is dL/d(B h).
    void base_gradient(const T* e, const T* h, double* grad_c, double* grad_s) const {
        const i64 half = chain.layout.n / 2, first = chain.layout.first, offset = chain.layout.offset;
        for (i64 i = 0; i < first; ++i) {
            const T partner = i < half ? h[first + i] : h[i];
            grad_c[i] += e[i] * h[i];
            grad_s[i] += e[i] * partner;
        }
        for (i64 i = 0; i < half; ++i) {
            grad_c[offset + i] += e[offset + i] * h[first + i];
            grad_s[offset + i] += e[offset + i] * h[i];
        }
    }

    struct Sums {
        Buffer<T> parameter;
        Buffer<double> wide, c, s;
        i64 waiting = 0;
        void flush(i64 slots) {
            for (i64 i = 0; i < slots; ++i) wide[i] += static_cast<double>(parameter[i]);
            clear(parameter.data, slots);
            waiting = 0;
        }
    };

    void run(Range range, Step& step, T* product, T* operand, T* scratch, Sums& sums, i64 stride, int part) {
        const Rows& rows = call.rows;
        const i64 N = rows.N, slots = chain.layout.slots;
        clear(product, (range.end - range.begin) * stride);
        const T* const grad_states = static_cast<const T*>(call.grad_states);
        const T* const grad_last = static_cast<const T*>(call.grad_last);
        const T* const kept = static_cast<const T*>(call.kept);
        T* const delta = static_cast<T*>(call.delta);
        const i64 steps = range.begin < range.end ? length(rows, range.begin) : 0;
        i64 first = 0, before = 0, countdown = chain.steps_between_polls;
        for (i64 t = 0; t + 1 < steps; ++t) first += running(rows, t);
        for (i64 t = steps - 1; t >= 0; --t) {
            const i64 active = minimum(running(rows, t), range.end) - range.begin;
            for (i64 i = 0; i < active; ++i) {
                const i64 row = first + range.begin + i;
                const T* grad = grad_states ? grad_states + row * N : chain.zeros.data;
                if (i >= before && grad_last) {
                    const T* last = grad_last + (range.begin + i) * N;
                    if (grad_states) {
                        for (i64 n = 0; n < N; ++n) scratch[n] = grad[n] + last[n];
                        grad = scratch;
                    } else {
                        grad = last;
                    }
                }
                const BackwardPass<T> pass{product + i * stride, grad, kept + row * N, delta + row * N,
                                           operand + i * stride, sums.parameter.data};
                chain.functions.backward(chain.shared, pass);
            }
            if (chain.functions.trained && (sums.waiting += active) >= passes_in_single_sum) sums.flush(slots);
            step.advance(operand, stride, active, product, first + range.begin);
            const i64 previous = t > 0 ? first - running(rows, t - 1) : 0;
            if (call.grad_c && (t > 0 || call.h0)) {
                const T* h = t > 0 ? static_cast<const T*>(call.states) + previous * N : static_cast<const T*>(call.h0);
                for (i64 i = 0; i < active; ++i)
                    base_gradient(product + i * stride, h + (range.begin + i) * N, sums.c.data, sums.s.data);
            }
            before = active;
            first = previous;
            if (--countdown == 0) {
                countdown = chain.steps_between_polls;
                if (should_stop(call.run.interrupt, part)) return;
            }
        }
        if (chain.functions.trained) sums.flush(slots);
        if (!call.grad_h0) return;
        for (i64 i = 0; i < range.end - range.begin; ++i) {
            chain.apply_base_transpose(product + i * stride);
            from_slots(chain.layout, product + i * stride, static_cast<T*>(call.grad_h0) + (range.begin + i) * N);
        }
    }
};

// How many parts the sequences are given to threads in, and the rows of the largest block.
struct Plan {
    int parts;
    i64 rows;
};

inline Plan plan(const Rows& rows, int threads, i64 at_once) {
    Plan p{static_cast<int>(maximum<i64>(1, minimum<i64>(threads, rows.B))), 1};
    for (int part = 0; part < p.parts; ++part) {
        const Range r = share(rows, part, p.parts);
        const i64 count = r.end - r.begin;
        if (count > 0) p.rows = maximum(p.rows, (count + (count + at_once - 1) / at_once - 1) /
                                                    ((count + at_once - 1) / at_once));
    }
    return p;
}

// What each part works in, made before the threads start.
template <class Part>
struct Parts {
    Buffer<Part*> at;
    int count;
    template <class Make>
    Parts(int n, const Make& make) : at(n), count(n) {
        for (int i = 0; i < n; ++i) at[i] = make();
    }
    ~Parts() {
        for (int i = 0; i < count; ++i) delete at[i];
    }
};

// body(part, range, index) for every block of sequences, each on the thread of its part.
template <class Part, class Body>
void over_sequences(const Rows& rows, const Run& run, const Plan& plan, const Parts<Part>& parts, const Body& body) {
    run_parts(plan.parts, run.threads, [&](int index) {
        const Range all = share(rows, index, plan.parts);
        const Split blocks(all.end - all.begin, plan.rows);
        for (i64 b = 0; b < blocks.parts; ++b)
            body(*parts.at[index], Range{all.begin + blocks.begin(b), all.begin + blocks.begin(b + 1)}, index);
    });
}

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
        Buffer<T> product, operand, scratch, states;
    };
    const Parts<Part> parts(p.parts, [&] {
        return new Part{Step(work.shared, l, p.rows, call.h_tilde), Buffer<T>(p.rows * stride),
                        Buffer<T>(p.rows * stride), Buffer<T>(l.slots),
                        Buffer<T>(call.states ? 1 : p.rows * call.rows.N)};
    });
    over_sequences(call.rows, call.run, p, parts, [&](Part& own, Range range, int index) {
        work.run(range, own.step, own.product.data, own.operand.data, own.scratch.data, own.states.data, stride, index);
    });
    if (call.rows.T == 0 && call.last) {
        const i64 count = call.rows.B * call.rows.N;
        if (call.h0) copy(static_cast<T*>(call.last), static_cast<const T*>(call.h0), count);
        else clear(static_cast<T*>(call.last), count);
    }
}

template <class T, class Step>
void run_backward(const Backward& call) {
    using Work = BackwardWork<T, Step>;
    Work work{call, Chain<T>(call.rows, call.transition, call.phi, call.clip), {}};
    const Layout& l = work.chain.layout;
    const Plan p = plan(call.rows, call.run.threads, block_rows);
    const i64 stride = row_stride<T>(l.slots);
    work.shared.prepare(call.transition, l, p.rows, true);
    struct Part {
        Step step;
        Buffer<T> product, operand, scratch;
        typename Work::Sums sums;
    };
    const Parts<Part> parts(p.parts, [&] {
        return new Part{Step(work.shared, l, p.rows, call.C_tilde), Buffer<T>(p.rows * stride),
                        Buffer<T>(p.rows * stride), Buffer<T>(maximum(l.slots, call.rows.N)),
                        {Buffer<T>(l.slots), Buffer<double>(l.slots), Buffer<double>(l.slots), Buffer<double>(l.slots)}};
    });
    over_sequences(call.rows, call.run, p, parts, [&](Part& own, Range range, int index) {
        work.run(range, own.step, own.product.data, own.operand.data, own.scratch.data, own.sums, stride, index);
    });
    // The parts' sums in their order.
    Buffer<double> total(l.slots);
    Buffer<T> narrow(l.slots);
    const auto collect = [&](Buffer<double> Work::Sums::*which, void* out, bool half) {
        if (!out) return;
        clear(total.data, l.slots);
        for (int i = 0; i < p.parts; ++i)
            for (i64 k = 0; k < l.slots; ++k) total[k] += (parts.at[i]->sums.*which)[k];
        for (i64 k = 0; k < l.slots; ++k) narrow[k] = static_cast<T>(total[k]);
        if (half) copy(static_cast<T*>(out), narrow.data, call.rows.N / 2);
        else from_slots(l, narrow.data, static_cast<T*>(out));
    };
    if (work.chain.functions.trained) collect(&Work::Sums::wide, call.grad_parameter, work.chain.functions.pairs);
    collect(&Work::Sums::c, call.grad_c, false);
    collect(&Work::Sums::s, call.grad_s, false);
    if (call.rows.T == 0 && call.grad_h0) {
        const i64 count = call.rows.B * call.rows.N;
        if (call.grad_last) copy(static_cast<T*>(call.grad_h0), static_cast<const T*>(call.grad_last), count);
        else clear(static_cast<T*>(call.grad_h0), count);
    }
}

// Up to how many sequences a row at a time is faster than a block of rows. A rule of B, not of the rows of a thread: the
// two ways add in different orders.
constexpr i64 single_rows = 4;

template <class T>
void forward(const Forward& call) {
    if (call.transition.W) run_forward<T, DenseStep<T>>(call);
    else if (call.rows.B <= single_rows) run_forward<T, SingleStep<T>>(call);
    else run_forward<T, CompactStep<T>>(call);
}

template <class T>
void backward(const Backward& call) {
    if (call.transition.W) run_backward<T, DenseStep<T>>(call);
    else if (call.rows.B <= single_rows) run_backward<T, SingleStep<T>>(call);
    else run_backward<T, CompactStep<T>>(call);
}

}  // namespace orthornn::ORTHORNN_ISA
