// x_t of one row, ready for the pass: the caller's projected row; or V x + bias of a few numbers, made on the way (the
// chain does not wait for it); or a row of the table of the tokens that occur.
#pragma once

#include "layout.hpp"

namespace orthornn::ORTHORNN_ISA {

// Numbers the tokens that occur from 1 on, in place[token]; returns how many there are.
inline i64 number_tokens(const Input& input, i64 rows, Buffer<std::int32_t>& place) {
    place.reset(input.size);
    std::int32_t used = 0;
    const i64* const tokens = static_cast<const i64*>(input.rows);
    for (i64 r = 0; r < rows; ++r)
        if (!place[tokens[r]]) place[tokens[r]] = ++used;
    return used;
}

template <class T>
struct InputRows {
    Input input;
    Layout layout;
    Buffer<T> columns;           // raw: bias, then V's columns; tokens: a row for each token that occurs, bias added
    Buffer<std::int32_t> place;  // token -> row of `columns`, from 1

    void prepare(const Input& in, const Layout& l, i64 rows) {
        input = in;
        layout = l;
        const T* weight = static_cast<const T*>(in.weight);
        const T* bias = static_cast<const T*>(in.bias);
        if (in.kind == InputKind::raw) {
            columns.reset((in.size + 1) * l.slots);
            if (bias) to_slots(l, bias, columns.data);
            for (i64 i = 0; i < in.size; ++i) spread(weight + i, columns + (i + 1) * l.slots);
        } else if (in.kind == InputKind::tokens) {
            columns.reset(number_tokens(in, rows, place) * l.slots);
            for (i64 i = 0; i < in.size; ++i) {
                if (!place[i]) continue;
                T* row = columns + (place[i] - 1) * l.slots;
                spread(weight + i, row);
                for (i64 n = 0; bias && n < l.n; ++n) row[slot(n)] += bias[n];
            }
        }
    }

    // The two regions of row r; `scratch` has room for the slots.
    ORTHORNN_INLINE void row(i64 r, T* scratch, const T*& x0, const T*& x1) const {
        if (input.kind == InputKind::projected) {
            x0 = static_cast<const T*>(input.rows) + r * layout.n;
            x1 = x0 + layout.first;
            return;
        }
        if (input.kind == InputKind::tokens) {
            x0 = columns + (place[static_cast<const i64*>(input.rows)[r]] - 1) * layout.slots;
        } else {
            const T* numbers = static_cast<const T*>(input.rows) + r * input.size;
            for (i64 i = 0; i < layout.slots; i += width<T>) {
                Vector<T> x = load(columns + i);
                for (i64 k = 0; k < input.size; ++k)
                    x = fma(broadcast(numbers[k]), load(columns + (k + 1) * layout.slots + i), x);
                store<T>(scratch + i, x);
            }
            x0 = scratch;
        }
        x1 = x0 + layout.offset;
    }

private:
    i64 slot(i64 n) const { return n < layout.first ? n : layout.offset + n - layout.first; }
    void spread(const T* column, T* slots) const {
        for (i64 n = 0; n < layout.n; ++n) slots[slot(n)] = column[n * input.size];
    }
};

}  // namespace orthornn::ORTHORNN_ISA
