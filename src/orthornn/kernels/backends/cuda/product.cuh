// A product of a matrix that stays on the chip and a vector in shared memory, by the THREADS threads of a block.
//
// A matrix A (ROWS, COLUMNS) is dealt out in tiles of 4 rows by 4 columns: LANES neighboring threads share 4 rows, thread
// `lane` of them has columns 4 (q LANES + lane) ... + 3 for q < QUADS. Of its QUADS tiles a thread holds HELD in registers
// and reads the others from shared memory, where its 16 bytes lie beside its neighbor's. The vector is read from shared
// memory, LANES * 16 bytes in a row, the same for every group.
#pragma once

__device__ constexpr int round_up(int number, int to) { return (number + to - 1) / to * to; }

template <int ROWS, int COLUMNS, int LANES, int WANTED>
struct Product {
    static constexpr int GROUPS = THREADS / LANES;
    static constexpr int PASSES = (ROWS + 4 * GROUPS - 1) / (4 * GROUPS);
    static constexpr int QUADS = (COLUMNS + 4 * LANES - 1) / (4 * LANES);
    static constexpr int HELD = WANTED < QUADS ? WANTED : QUADS;
    static constexpr int VECTOR = 4 * LANES * QUADS;                           // floats of the padded vector
    static constexpr int IN_SHARED = PASSES * (QUADS - HELD) * 4 * THREADS;    // float4

    float4 held[PASSES][HELD > 0 ? HELD : 1][4];
    const float4* rest;
    int lane, group;

    // Of A only the first `rows` rows are there; the others are zero.
    __device__ void load(const float* A, int rows, int row_stride, int column_stride, float4* shared) {
        lane = threadIdx.x % LANES;
        group = threadIdx.x / LANES;
        rest = shared + threadIdx.x;
#pragma unroll
        for (int p = 0; p < PASSES; ++p)
#pragma unroll
            for (int q = 0; q < QUADS; ++q)
#pragma unroll
                for (int r = 0; r < 4; ++r) {
                    const int i = (p * GROUPS + group) * 4 + r, j = 4 * (q * LANES + lane);
                    float w[4];
#pragma unroll
                    for (int k = 0; k < 4; ++k)
                        w[k] = i < rows && j + k < COLUMNS ? A[i * row_stride + (j + k) * column_stride] : 0.0f;
                    const float4 tile = make_float4(w[0], w[1], w[2], w[3]);
                    if (q < HELD) held[p][q < HELD ? q : 0][r] = tile;
                    else shared[((p * (QUADS - HELD) + q - HELD) * 4 + r) * THREADS + threadIdx.x] = tile;
                }
    }

    // A v: the sums of row(p) are in sums[p] of the threads for which owns() holds. Every thread of the block calls it.
    __device__ void multiply(const float* v, float (&sums)[PASSES]) const {
        const float4* vector = reinterpret_cast<const float4*>(v) + lane;
        multiply<1>([&](int q, int) { return vector[q * LANES]; }, sums);
    }

    // A v for VECTORS vectors at once: sums[p] of each thread is that of row `index<VECTORS>() % 4` of its 4 rows and of vector
    // `index<VECTORS>() / 4`. read(q, k) returns numbers 4 (q LANES + lane) ... + 3 of vector k. A sum has the same bits for
    // every VECTORS.
    template <int VECTORS, typename Read>
    __device__ void multiply(const Read& read, float (&sums)[PASSES]) const {
        static_assert(4 * VECTORS <= LANES, "every sum needs a thread");
#pragma unroll
        for (int p = 0; p < PASSES; ++p) {
            float s[4 * VECTORS];
#pragma unroll
            for (int k = 0; k < 4 * VECTORS; ++k) s[k] = 0.0f;
#pragma unroll
            for (int q = 0; q < QUADS; ++q) {
                float4 h[VECTORS];
#pragma unroll
                for (int k = 0; k < VECTORS; ++k) h[k] = read(q, k);
#pragma unroll
                for (int r = 0; r < 4; ++r) {
                    const float4 w = q < HELD ? held[p][q < HELD ? q : 0][r]
                                              : rest[((p * (QUADS - HELD) + q - HELD) * 4 + r) * THREADS];
#pragma unroll
                    for (int k = 0; k < VECTORS; ++k) {
                        float& sum = s[4 * k + r];
                        sum = fmaf(w.x, h[k].x, fmaf(w.y, h[k].y, fmaf(w.z, h[k].z, fmaf(w.w, h[k].w, sum))));
                    }
                }
            }
            sums[p] = own_sum<VECTORS>(s);
        }
    }

    // Of 4 VECTORS sums over LANES threads that of `index`: each exchange halves how many a thread is still responsible for,
    // until it is one.
    template <int VECTORS>
    __device__ float own_sum(float (&s)[4 * VECTORS]) const {
#pragma unroll
        for (int step = 0; LANES / 2 >> step > 0; ++step) {
            const int mask = LANES / 2 >> step, count = 2 * VECTORS >> step;
            const bool upper = lane & mask;
            if (count == 0) s[0] += shuffle(s[0], mask);
#pragma unroll
            for (int k = 0; k < 2 * VECTORS; ++k)
                if (k < count) {
                    const float other = shuffle(select(upper, s[k], s[k + count]), mask);
                    s[k] = select(upper, s[k + count], s[k]) + other;
                }
        }
        return s[0];
    }

    __device__ static float shuffle(float value, int mask) { return __shfl_xor_sync(0xffffffffu, value, mask); }

    // Which of 4 VECTORS sums is a thread's: LANES / (4 VECTORS) neighbors have the same one.
    template <int VECTORS>
    __device__ int index() const {
        return lane / (LANES / (4 * VECTORS));
    }

    __device__ int row(int p) const { return (p * GROUPS + group) * 4 + index<1>(); }

    __device__ bool owns(int p) const { return (lane & (LANES / 4 - 1)) == 0 && row(p) < ROWS; }
};
