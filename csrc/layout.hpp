// How a state lies in the kernels' own buffers, and the memory they work in.
//
// Units are stored in vectors. Where units act in pairs (the base's swap, complex_modrelu, oplu), the two halves start at
// vectors 0 and `vectors`, so that the partners of a vector fill a vector: pair i is lane i of both. An odd middle unit
// ends the first half, as in the caller's order. Lanes without a unit hold zero.
#pragma once

#include "parallel.hpp"
#include "vector.hpp"

namespace orthornn::ORTHORNN_ISA {

// memcpy and memset of whole numbers that take null pointers where there is nothing to do.
template <class T>
ORTHORNN_INLINE void copy(T* to, const T* from, i64 count) {
    if (count > 0) memcpy(to, from, sizeof(T) * static_cast<std::size_t>(count));
}
template <class T>
ORTHORNN_INLINE void clear(T* to, i64 count) {
    if (count > 0) memset(to, 0, sizeof(T) * static_cast<std::size_t>(count));
}

// Into the first cache level, to be read or to be written. GCC counts a function that only prefetches as one without effects,
// and leaves its calls out; the empty statement is an effect.
template <bool to_write = false, class T>
ORTHORNN_INLINE void prefetch(const T* p, i64 count) {
    const char* const bytes = reinterpret_cast<const char*>(p);
    asm volatile("");
    for (i64 i = 0; i < count * static_cast<i64>(sizeof(T)); i += 64) __builtin_prefetch(bytes + i, to_write, 3);
}

struct Layout {
    i64 n, first, second;  // units, units in each region; without pairs the second is empty
    i64 vectors;           // of one region
    i64 offset;            // where the second region starts
    i64 slots;
    bool paired;
};

template <class T>
Layout layout(i64 n, bool paired) {
    Layout l{};
    l.n = n;
    l.paired = paired;
    l.first = paired ? n - n / 2 : n;
    l.second = n - l.first;
    l.offset = round_up(l.first, width<T>);
    l.vectors = l.offset / width<T>;
    l.slots = paired ? 2 * l.offset : l.offset;
    return l;
}

template <class T>
void to_slots(const Layout& l, const T* user, T* slots) {
    clear(slots, l.slots);
    copy(slots, user, l.first);
    copy(slots + l.offset, user + l.first, l.second);
}

template <class T>
void from_slots(const Layout& l, const T* slots, T* user) {
    copy(user, slots, l.first);
    copy(user + l.first, slots + l.offset, l.second);
}

// Memory of one owner, freed with it; zero at first.
template <class T>
struct Buffer {
    T* data = nullptr;
    Buffer() = default;
    explicit Buffer(i64 count) { reset(count); }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() { release(data); }
    void reset(i64 count) {
        reserve(count);
        clear(data, count);
    }
    void reserve(i64 count) {  // not zero
        release(data);
        data = nullptr;
        data = static_cast<T*>(allocate(sizeof(T) * static_cast<std::size_t>(count)));
    }
    T* operator+(i64 i) const { return data + i; }
    T& operator[](i64 i) const { return data[i]; }
};

// The distance between rows of a block: an odd number of cache lines, so that rows do not share cache sets.
template <class T>
i64 row_stride(i64 slots) {
    const i64 line = 64 / static_cast<i64>(sizeof(T));
    const i64 lines = (slots + line - 1) / line;
    return (lines + 1 - lines % 2) * line;
}

inline i64 running(const Rows& rows, i64 t) { return rows.steps ? rows.steps[t] : rows.B; }
inline bool restarts(const Rows& rows, i64 row) { return rows.resets && rows.resets[row]; }
inline i64 length(const Rows& rows, i64 b) { return rows.lengths ? rows.lengths[b] : rows.T; }

// Contiguous ranges of sequences of about equal work. A sequence's bits do not depend on its neighbours in a range.
struct Range {
    i64 begin, end;
};

inline Range share(const Rows& rows, int part, int parts) {
    i64 total = 0, seen = 0;
    for (i64 b = 0; b < rows.B; ++b) total += length(rows, b);
    Range range{rows.B, rows.B};
    bool open = false;
    for (i64 b = 0; b <= rows.B; ++b) {
        // The part in which the middle of row b lies.
        i64 at = parts;
        if (b < rows.B) {
            const i64 len = length(rows, b);
            at = total ? (2 * seen + len) * parts / (2 * total) : 0;
            seen += len;
        }
        if (!open && at >= part) {
            range.begin = b;
            open = true;
        }
        if (at > part) {
            range.end = b;
            break;
        }
    }
    if (range.end < range.begin) range.end = range.begin;
    return range;
}

// body(part) on the threads of the process.
template <class Body>
void run_parts(int parts, int threads, const Body& body) {
    parallel(parts, threads, [](void* data, int part) { (*static_cast<const Body*>(data))(part); },
             const_cast<void*>(static_cast<const void*>(&body)));
}

}  // namespace orthornn::ORTHORNN_ISA
