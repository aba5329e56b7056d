// The linear recurrence of rotations, z_t = R z_{t-1} + x_t: one sequence, one piece of it and one pair of units a thread.
//
// Compiled at run time by NVRTC with THREADS. rotations.py says how pieces make up a sequence.
struct Arguments {
    const float* x;      // (T, B, N), or null for zeros
    const float* start;  // (P, B, N): the state before each piece, or null for zeros
    float* states;       // (T, B, N), or null
    float* ends;         // (P, B, N): the state after each piece, or null
    const bool* resets;  // (T, B): where `restart` takes the place of the state before a step, or null
    const float* restart;  // (B, N), or null for zeros
    const double* c;     // (N,)
    const double* s;
    int steps;
    int batch;
    int n;
    int length;   // steps of a piece; the last one may have fewer
    int power;    // R is this power of the transition that c and s describe
    int reverse;  // time runs backwards
};

constexpr int AHEAD = 8;    // rows that are read before their turn: each takes longer than a step
constexpr int AT_ONCE = 16;  // blocks that a multiprocessor has registers for, at least

// What R does to a pair of units: (c0 z0 + s0 z1, s1 z0 + c1 z1).
struct Turn {
    double c0, s0, s1, c1;

    __device__ Turn operator*(const Turn& other) const {
        return {c0 * other.c0 + s0 * other.s1, c0 * other.s0 + s0 * other.c1,
                s1 * other.c0 + c1 * other.s1, s1 * other.s0 + c1 * other.c1};
    }
};

__device__ inline Turn to_the(int power, Turn base) {
    Turn result = {1.0, 0.0, 0.0, 1.0};
    for (; power > 0; power /= 2) {
        if (power % 2) result = result * base;
        base = base * base;
    }
    return result;
}

// A coefficient, and what rounding to float32 takes from it.
struct Coefficient {
    float high, low;

    __device__ explicit Coefficient(double value) : high((float)value), low((float)(value - (double)high)) {}
};

// The low parts first, then products that are not rounded before they are added.
__device__ inline float sum(const Coefficient& c, float z, const Coefficient& s, float other) {
    return fmaf(c.high, z, fmaf(s.high, other, fmaf(c.low, z, s.low * other)));
}

extern "C" __global__ void __launch_bounds__(THREADS, AT_ONCE) scan(Arguments a) {
    const int half = a.n / 2, second = a.n - half, i = blockIdx.z * THREADS + threadIdx.x;
    if (i >= second) return;
    const bool paired = i < half;  // the middle of an odd n is not
    const Turn once = paired ? Turn{a.c[i], a.s[i], a.s[second + i], a.c[second + i]} : Turn{a.c[i] + a.s[i], 0.0, 0.0, 0.0};
    const Turn turn = to_the(a.power, once);
    const Coefficient c0(turn.c0), s0(turn.s0), s1(turn.s1), c1(turn.c1);

    const int b = blockIdx.x, piece = blockIdx.y, before = piece * a.length;
    const int length = a.steps - before < a.length ? a.steps - before : a.length;
    const long long row = (long long)(a.reverse ? a.steps - 1 - before : before) * a.batch + b;
    const long long next = (long long)a.n * a.batch * (a.reverse ? -1 : 1);
    const long long own = ((long long)piece * a.batch + b) * a.n + i;
    const float* x = a.x ? a.x + row * a.n + i : nullptr;
    float* state = a.states ? a.states + row * a.n + i : nullptr;

    float z0 = a.start ? a.start[own] : 0.0f, z1 = a.start && paired ? a.start[own + second] : 0.0f;
    const float* anew = a.restart ? a.restart + (long long)b * a.n + i : nullptr;
    float x0[AHEAD], x1[AHEAD];
    bool restarts[AHEAD];
    const auto read = [&](int t, int k) {
        restarts[k] = a.resets && t < length && a.resets[row + (long long)t * (a.reverse ? -a.batch : a.batch)];
        x0[k] = x && t < length ? x[t * next] : 0.0f;
        x1[k] = x && t < length && paired ? x[t * next + second] : 0.0f;
    };
#pragma unroll
    for (int k = 0; k < AHEAD; ++k) read(k, k);
    for (int t = 0; t < length; t += AHEAD)
#pragma unroll
        for (int k = 0; k < AHEAD; ++k) {
            if (t + k >= length) break;
            if (restarts[k]) {
                z0 = anew ? anew[0] : 0.0f;
                z1 = anew && paired ? anew[second] : 0.0f;
            }
            const float y0 = sum(c0, z0, s0, z1) + x0[k], y1 = sum(c1, z1, s1, z0) + x1[k];
            z0 = y0, z1 = y1;
            read(t + k + AHEAD, k);
            if (state) {
                state[(t + k) * next] = z0;
                if (paired) state[(t + k) * next + second] = z1;
            }
        }
    if (a.ends) {
        a.ends[own] = z0;
        if (paired) a.ends[own + second] = z1;
    }
}
