// The register block of every matrix product here: c[i][:] = init[i][:] + sum_k a[i, k] b[k][:] for `rows` rows and
// `vectors` vectors of columns; init[i][:] times factors[i], where there are any.
//
//     for k:  load vectors of b[k]; for each row: broadcast a[i, k], multiply and add
//
// Traffic for each k: `vectors` vectors and `rows` single numbers read for rows * vectors multiply-adds. Each entry of c
// is one chain of multiply-adds over ascending k whatever the block's shape, so its bits do not depend on the shape.
#pragma once

#include "layout.hpp"

namespace orthornn::ORTHORNN_ISA {

template <class T>
struct TileArguments {
    i64 depth;
    const T* a;
    i64 a_row, a_step;
    const T* b;
    i64 b_step;
    const T* init;  // or null for zero
    i64 init_row;
    T* c;
    i64 c_row;
    const T* factors = nullptr;  // of rows of init, or null for 1
    i64 factor_step = 0;
};

// Vectors of columns that fit the registers beside `rows` rows.
constexpr int columns_at_once(int rows) {
    int vectors = 1;
    while (vectors < panel_limit && rows * (vectors + 1) + minimum(rows, vectors + 1) + 1 <= registers) ++vectors;
    return vectors;
}

template <class T, int rows, int vectors>
void tile(const TileArguments<T>& t) {
    using V = Vector<T>;
    constexpr int W = width<T>;
    V acc[rows][vectors];
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 16
        for (int v = 0; v < vectors; ++v) acc[i][v] = zero<T>();
    }
    if (t.init) {
#pragma GCC unroll 16
        for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 16
            for (int v = 0; v < vectors; ++v) acc[i][v] = load_loose(t.init + i * t.init_row + v * W);
        }
        if (t.factors) {
#pragma GCC unroll 16
            for (int i = 0; i < rows; ++i) {
                const V factor = broadcast<T>(t.factors[i * t.factor_step]);
#pragma GCC unroll 16
                for (int v = 0; v < vectors; ++v) acc[i][v] = factor * acc[i][v];
            }
        }
    }
    // One pointer for every three rows: base, base + row, base + 2 row are addresses of one instruction.
    constexpr int bases = (rows + 2) / 3;
    const T* a[bases];
#pragma GCC unroll 16
    for (int i = 0; i < bases; ++i) a[i] = t.a + 3 * i * t.a_row;
    const T* b = t.b;
    const i64 a_row = t.a_row, a_step = t.a_step, b_step = t.b_step;
    for (i64 k = t.depth; k > 0; --k) {
        if constexpr (rows <= vectors) {
            V scalar[rows];
#pragma GCC unroll 16
            for (int i = 0; i < rows; ++i) scalar[i] = broadcast<T>(a[i / 3][(i % 3) * a_row]);
#pragma GCC unroll 16
            for (int v = 0; v < vectors; ++v) {
                const V column = load_loose(b + v * W);
#pragma GCC unroll 16
                for (int i = 0; i < rows; ++i) acc[i][v] = fma(scalar[i], column, acc[i][v]);
            }
        } else {
            V column[vectors];
#pragma GCC unroll 16
            for (int v = 0; v < vectors; ++v) column[v] = load_loose(b + v * W);
#pragma GCC unroll 16
            for (int i = 0; i < rows; ++i) {
                const V scalar = broadcast<T>(a[i / 3][(i % 3) * a_row]);
#pragma GCC unroll 16
                for (int v = 0; v < vectors; ++v) acc[i][v] = fma(scalar, column[v], acc[i][v]);
            }
        }
#pragma GCC unroll 16
        for (int i = 0; i < bases; ++i) a[i] += a_step;
        b += b_step;
    }
#pragma GCC unroll 16
    for (int i = 0; i < rows; ++i) {
#pragma GCC unroll 16
        for (int v = 0; v < vectors; ++v) store_loose<T>(t.c + i * t.c_row + v * W, acc[i][v]);
    }
}

template <class T>
using Tile = void (*)(const TileArguments<T>&);

template <class T>
struct TileTable {
    Tile<T> at[rows_at_once + 1][panel_limit + 1];
};

template <class T, int rows, int vectors>
constexpr void fill_tiles(TileTable<T>& table) {
    table.at[rows][vectors] = tile<T, rows, vectors>;
    if constexpr (vectors < columns_at_once(rows)) {
        fill_tiles<T, rows, vectors + 1>(table);
    } else if constexpr (rows < rows_at_once) {
        fill_tiles<T, rows + 1, 1>(table);
    }
}

template <class T>
constexpr TileTable<T> make_tiles() {
    TileTable<T> table{};
    fill_tiles<T, 1, 1>(table);
    return table;
}

template <class T>
inline constexpr TileTable<T> tiles = make_tiles<T>();

// How `count` things split into parts of nearly equal size, at most `limit` each.
struct Split {
    i64 parts, count;
    Split(i64 n, i64 limit) : parts((n + limit - 1) / limit), count(n) {}
    i64 begin(i64 part) const { return part * count / parts; }
    i64 size(i64 part) const { return begin(part + 1) - begin(part); }
};

}  // namespace orthornn::ORTHORNN_ISA
