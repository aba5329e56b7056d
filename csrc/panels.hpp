// A fixed matrix (depth K, columns) laid out for products with rows: panels of a few vectors of columns, each panel
// contiguous in k. Rows of zeros at a panel's ends (triangles, trapezoids) are left out of its range of k.
#pragma once

#include "tile.hpp"

namespace orthornn::ORTHORNN_ISA {

// Entry (k, column) of the matrix is scale * data[k * k_step + column * column_step].
template <class T>
struct Source {
    const T* data;
    i64 k_step, column_step;
    T scale;
};

template <class T>
struct Panels {
    static constexpr int W = width<T>;
    Buffer<T> data;
    Buffer<i64> first, last;  // each panel's range of k
    Buffer<i64> start;        // each panel's first vector, and the end
    i64 depth = 0, vectors = 0, count = 0, stride = 0, row_limit = 1;
    i64 regions = 1;  // 2 where no panel reaches from one half of the units into the other

    // `rows` is how many rows the products will have, which decides the panels' width; 0 asks for at most `wanted`
    // vectors, the same in both regions of the columns.
    void pack(const Source<T>& source, const Layout& k_layout, const Layout& columns, i64 rows, i64 wanted = 0) {
        depth = k_layout.slots;
        vectors = columns.slots / W;
        const i64 at_once = rows ? Split(rows, rows_at_once).size(Split(rows, rows_at_once).parts - 1) : 1;
        const i64 limit = wanted ? wanted : columns_at_once(static_cast<int>(at_once));
        regions = wanted && columns.paired ? 2 : 1;
        const i64 each = Split(vectors / regions, limit).parts, region = vectors / regions;
        count = regions * each;
        start.reset(count + 1);
        for (i64 p = 0; p < count; ++p) start[p] = p / each * region + p % each * region / each;
        start[count] = vectors;
        i64 widest = 0;
        for (i64 p = 0; p < count; ++p) widest = maximum(widest, size(p));
        stride = depth * widest * W;
        row_limit = 1;
        while (row_limit < rows_at_once && columns_at_once(static_cast<int>(row_limit) + 1) >= widest) ++row_limit;
        data.reset(count * stride);
        first.reset(count);
        last.reset(count);
        for (i64 p = 0; p < count; ++p) fill(source, k_layout, columns, p, begin(p) * W, size(p) * W);
    }
    i64 begin(i64 panel) const { return start[panel]; }
    i64 size(i64 panel) const { return start[panel + 1] - start[panel]; }
    // Row k of a panel.
    const T* at(i64 panel, i64 k) const { return data + panel * stride + k * size(panel) * W; }

private:
    void fill(const Source<T>& source, const Layout& k_layout, const Layout& columns, i64 panel, i64 slot0, i64 slots) {
        T* out = data + panel * stride;
        const i64 k_first[2] = {k_layout.first, k_layout.second};
        for (int kr = 0; kr < 2; ++kr) {
            const i64 k_slot = kr ? k_layout.offset : 0, k_user = kr ? k_layout.first : 0;
            for (int cr = 0; cr < 2; ++cr) {
                // The columns of this region that lie in the panel.
                const i64 region = cr ? columns.offset : 0, user = cr ? columns.first : 0;
                const i64 c0 = maximum(slot0, region), c1 = minimum(slot0 + slots, region + (cr ? columns.second
                                                                                                : columns.first));
                if (c1 <= c0) continue;
                const T* in = source.data + k_user * source.k_step + (user + c0 - region) * source.column_step;
                T* target = out + k_slot * slots + (c0 - slot0);
                const T scale = source.scale;
                if (source.column_step == 1) {
                    for (i64 k = 0; k < k_first[kr]; ++k)
                        for (i64 c = 0; c < c1 - c0; ++c) target[k * slots + c] = scale * in[k * source.k_step + c];
                } else {
                    for (i64 c = 0; c < c1 - c0; ++c)
                        for (i64 k = 0; k < k_first[kr]; ++k)
                            target[k * slots + c] = scale * in[k * source.k_step + c * source.column_step];
                }
            }
        }
        i64 a = 0, z = depth;
        while (a < z && empty(out + a * slots, slots)) ++a;
        while (a < z && empty(out + (z - 1) * slots, slots)) --z;
        first[panel] = a;
        last[panel] = z;
    }
    static bool empty(const T* row, i64 slots) {
        for (i64 i = 0; i < slots; ++i)
            if (row[i] != T(0)) return false;
        return true;
    }
};

// c = init + a * matrix for `rows` rows (init null: zero). A panel stays in the nearest cache for all rows.
template <class T>
void product(const Panels<T>& matrix, const T* a, i64 a_row, i64 rows, T* c, i64 c_row, const T* init = nullptr,
             i64 init_row = 0) {
    constexpr int W = width<T>;
    if (rows == 0) return;
    const Split split(rows, matrix.row_limit);
    for (i64 p = 0; p < matrix.count; ++p) {
        const i64 k = matrix.first[p], column = matrix.begin(p) * W, vectors = matrix.size(p);
        TileArguments<T> t{matrix.last[p] - k, nullptr, a_row, 1, matrix.at(p, k), vectors * W, nullptr, init_row,
                           nullptr, c_row};
        for (i64 part = 0; part < split.parts; ++part) {
            const i64 row = split.begin(part);
            t.a = a + row * a_row + k;
            t.c = c + row * c_row + column;
            t.init = init ? init + row * init_row + column : nullptr;
            tiles<T>.at[split.size(part)][vectors](t);
        }
    }
}

}  // namespace orthornn::ORTHORNN_ISA
