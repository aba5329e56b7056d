// Rotations over irregular time: forward, and backward by hand; docs/derivations/irregular_time.md derives both.
//
// A row's coefficients are computed in registers from its dt, and again only where dt is another than that of the row
// before: with few gaps in time a step costs what one of a regular sequence does. States are carried in double and rounded
// where they are stored. The backward pass reads the states and computes the coefficients again.
#pragma once

#include <cmath>

#include "chain.hpp"
#include "irregular_call.hpp"
#include "turning.hpp"

namespace orthornn::ORTHORNN_ISA {

struct IrregularPart {
    Buffer<double> state;              // of each sequence of a block: slots
    Buffer<double> c, s;               // of a pair: exp(-lambda dt) cos(omega dt) and sin
    Buffer<double> before, row;        // slots
    Buffer<double> by_angle, by_rate;  // sums over rows, of a pair
    double dt = -1;                    // that of c and s
};

template <class T>
struct IrregularWork {
    const Rows rows;
    const IrregularTransition transition;
    const Layout layout;
    const i64 N;
    Buffer<double> angles, rates;  // of a pair; zero in lanes without one

    IrregularWork(const Rows& r, const IrregularTransition& t)
        : rows(r),
          transition(t),
          layout(ORTHORNN_ISA::layout<double>(r.N, true)),
          N(r.N),
          angles(layout.offset),
          rates(layout.offset) {
        copy(angles.data, t.angles, layout.second);
        copy(rates.data, t.rates, layout.first);
    }

    IrregularPart* part(i64 sequences) const {
        const i64 pairs = layout.offset, slots = layout.slots;
        return new IrregularPart{Buffer<double>(sequences * slots),
                                 Buffer<double>(pairs),
                                 Buffer<double>(pairs),
                                 Buffer<double>(slots),
                                 Buffer<double>(slots),
                                 Buffer<double>(pairs),
                                 Buffer<double>(pairs)};
    }

    i64 steps_between_polls() const { return maximum<i64>(1, 400000 / (block_rows * N)); }

    void widen(const T* user, double* slots) const {
        for (i64 i = 0; i < layout.first; ++i) slots[i] = static_cast<double>(user[i]);
        for (i64 i = 0; i < layout.second; ++i) slots[layout.offset + i] = static_cast<double>(user[layout.first + i]);
    }
    void narrow(const double* slots, T* user) const {
        for (i64 i = 0; i < layout.first; ++i) user[i] = static_cast<T>(slots[i]);
        for (i64 i = 0; i < layout.second; ++i) user[layout.first + i] = static_cast<T>(slots[layout.offset + i]);
    }
    // A row (B, N) of the initial states, or of those to restart from; zero without.
    void begin(const void* states, i64 b, double* slots) const {
        if (states) widen(static_cast<const T*>(states) + b * N, slots);
        else clear(slots, layout.slots);
    }

    void turn_to(double dt, IrregularPart& own) const {
        if (dt == own.dt) return;
        own.dt = dt;
        double largest = 0;
        for (i64 i = 0; i < layout.second; ++i) largest = maximum(largest, std::fabs(angles[i]));
        const bool in_reach = largest * dt < largest_angle;
        for (i64 i = 0; i < layout.offset; i += width<double>) {
            const VD angle = load(angles + i) * dt, factor = decayed(load(rates + i) * dt);
            VD sine{}, cosine{};
            if (in_reach) sine_and_cosine(angle, sine, cosine);
            else
                for (int k = 0; k < width<double>; ++k) {
                    sine[k] = std::sin(angle[k]);
                    cosine[k] = std::cos(angle[k]);
                }
            store<double>(own.c + i, factor * cosine);
            store<double>(own.s + i, factor * sine);
        }
    }
};

template <class T>
void irregular_forward(const IrregularForward& call) {
    const FlushDenormals flush;
    const IrregularWork<T> work(call.rows, call.transition);
    const Rows& rows = work.rows;
    const i64 N = work.N, slots = work.layout.slots, offset = work.layout.offset, between = work.steps_between_polls();
    T *const states = static_cast<T*>(call.states), *const last = static_cast<T*>(call.last);
    const Plan p = plan(rows, call.run.threads, block_rows);
    const Parts<IrregularPart> parts(p.parts, [&](int) { return work.part(p.rows); });
    over_sequences(rows, call.run, p, parts, [&](IrregularPart& own, Range range) {
        for (i64 b = range.begin; b < range.end; ++b) work.begin(call.h0, b, own.state + (b - range.begin) * slots);
        const i64 steps = range.begin < range.end ? length(rows, range.begin) : 0;
        i64 first = 0, countdown = between;
        for (i64 t = 0; t < steps; ++t) {
            const i64 active = minimum(running(rows, t), range.end) - range.begin;
            for (i64 i = 0; i < active; ++i) {
                const i64 b = range.begin + i, row = first + b;
                double* const z = own.state + i * slots;
                if (restarts(rows, row)) work.begin(call.restart, b, z);
                work.turn_to(call.transition.dt[row], own);
                work.widen(static_cast<const T*>(call.x) + row * N, own.row.data);
                for (i64 j = 0; j < offset; j += width<double>) {
                    const VD c = load(own.c + j), s = load(own.s + j), top = load(z + j), low = load(z + offset + j);
                    store<double>(z + j, fma(c, top, fma(s, low, load(own.row + j))));
                    store<double>(z + offset + j, fma(c, low, fnma(s, top, load(own.row + offset + j))));
                }
                if (states) work.narrow(z, states + row * N);
                if (last && t + 1 == length(rows, b)) work.narrow(z, last + b * N);
            }
            first += running(rows, t);
            if (--countdown == 0) {
                countdown = between;
                if (should_stop(call.run.interrupt)) return;
            }
        }
        for (i64 b = range.begin; last && steps == 0 && b < range.end; ++b)
            work.narrow(own.state + (b - range.begin) * slots, last + b * N);
    });
}

template <class T>
void irregular_backward(const IrregularBackward& call) {
    const FlushDenormals flush;
    const IrregularWork<T> work(call.rows, call.transition);
    const Rows& rows = work.rows;
    const Layout& l = work.layout;
    const i64 N = work.N, slots = l.slots, offset = l.offset, between = work.steps_between_polls();
    const T *const states = static_cast<const T*>(call.states), *const grad_states = static_cast<const T*>(call.grad_states),
                   *const grad_last = static_cast<const T*>(call.grad_last);
    T *const grad_x = static_cast<T*>(call.grad_x), *const grad_restart = static_cast<T*>(call.grad_restart);
    const Plan p = plan(rows, call.run.threads, block_rows);
    const Parts<IrregularPart> parts(p.parts, [&](int) { return work.part(p.rows); });
    const auto run = [&](IrregularPart& own, Range range) {
        if (grad_restart) clear(grad_restart + range.begin * N, (range.end - range.begin) * N);
        for (i64 b = range.begin; b < range.end; ++b) work.begin(grad_last, b, own.state + (b - range.begin) * slots);
        const i64 steps = range.begin < range.end ? length(rows, range.begin) : 0;
        i64 first = 0, countdown = between;
        for (i64 t = 0; t + 1 < steps; ++t) first += running(rows, t);
        for (i64 t = steps - 1; t >= 0; --t) {
            const i64 active = minimum(running(rows, t), range.end) - range.begin;
            const i64 previous = t > 0 ? first - running(rows, t - 1) : 0;
            for (i64 i = 0; i < active; ++i) {
                const i64 b = range.begin + i, row = first + b;
                double* const carried = own.state + i * slots;  // dL/dh_t of what comes later
                if (grad_states) {
                    work.widen(grad_states + row * N, own.row.data);
                    for (i64 j = 0; j < slots; j += width<double>)
                        store<double>(carried + j, load(carried + j) + load(own.row + j));
                }
                if (grad_x) work.narrow(carried, grad_x + row * N);
                const bool fresh = restarts(rows, row);
                if (!fresh && t > 0) work.widen(states + (previous + b) * N, own.before.data);
                else work.begin(fresh ? call.restart : call.h0, b, own.before.data);
                const double dt = call.transition.dt[row];
                work.turn_to(dt, own);
                VD by_dt = zero<double>();
                for (i64 j = 0; j < offset; j += width<double>) {
                    const VD c = load(own.c + j), s = load(own.s + j), top = load(carried + j),
                             low = load(carried + offset + j);
                    const VD before_top = load(own.before + j), before_low = load(own.before + offset + j);
                    const VD turned_top = fma(c, before_top, s * before_low),
                             turned_low = fnma(s, before_top, c * before_low);
                    const VD by_turn = fnma(low, turned_top, top * turned_low);
                    const VD by_length = fma(top, turned_top, low * turned_low);
                    by_dt = fma(load(work.angles + j), by_turn, fnma(load(work.rates + j), by_length, by_dt));
                    store<double>(own.by_angle + j, fma(by_turn, broadcast(dt), load(own.by_angle + j)));
                    store<double>(own.by_rate + j, fnma(by_length, broadcast(dt), load(own.by_rate + j)));
                    store<double>(carried + j, fnma(s, low, c * top));
                    store<double>(carried + offset + j, fma(s, top, c * low));
                }
                if (call.grad_dt) {
                    double sum = 0;
                    for (int k = 0; k < width<double>; ++k) sum += by_dt[k];
                    call.grad_dt[row] = sum;
                }
                if (!fresh) continue;
                if (grad_restart) {
                    T* const to = grad_restart + b * N;
                    for (i64 j = 0; j < l.first; ++j) to[j] += static_cast<T>(carried[j]);
                    for (i64 j = 0; j < l.second; ++j) to[l.first + j] += static_cast<T>(carried[offset + j]);
                }
                clear(carried, slots);
            }
            first = previous;
            if (--countdown == 0) {
                countdown = between;
                if (should_stop(call.run.interrupt)) return;
            }
        }
        for (i64 b = range.begin; call.grad_h0 && b < range.end; ++b)
            work.narrow(own.state + (b - range.begin) * slots, static_cast<T*>(call.grad_h0) + b * N);
    };
    over_sequences(rows, call.run, p, parts, run);
    const auto give = [&](double* to, i64 count, Buffer<double> IrregularPart::*sums) {
        if (!to) return;
        clear(to, count);
        for (int part = 0; part < parts.count; ++part)
            for (i64 i = 0; i < count; ++i) to[i] += ((*parts.at[part]).*sums)[i];
    };
    give(call.grad_angles, l.second, &IrregularPart::by_angle);
    give(call.grad_rates, l.first, &IrregularPart::by_rate);
}

}  // namespace orthornn::ORTHORNN_ISA
