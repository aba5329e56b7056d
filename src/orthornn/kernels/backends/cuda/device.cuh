// What NVRTC knows and a host's compiler does not: tests/support/emulation has another file of this name.
#pragma once

#define SHARED_MEMORY(type, name) extern __shared__ type name[]

// a where `which` holds, else b: never a branch, in which threads of a warp would shuffle apart from each other.
__device__ inline float select(bool which, float a, float b) {
    float chosen;
    asm("{ .reg .pred p; setp.ne.s32 p, %3, 0; selp.f32 %0, %1, %2, p; }" : "=f"(chosen) : "f"(a), "f"(b), "r"((int)which));
    return chosen;
}

// Clusters of thread blocks, from compute capability 9.0 on. An address of one's own shared memory stands for the same
// place in that of the block `rank` of the cluster.
#if __CUDA_ARCH__ >= 900
#define CLUSTER_OF(blocks) __cluster_dims__(blocks, 1, 1)

__device__ inline int cluster_rank() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return (int)rank;
}

__device__ inline void cluster_meet() {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

__device__ inline unsigned shared_address(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }

__device__ inline unsigned remote_address(const void* at, int rank) {
    unsigned address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address(at)), "r"(rank));
    return address;
}

// A phase of a barrier ends with the arrival of the bytes that its one thread has announced; phases count 0, 1, 0, ...
struct Barrier {
    unsigned long long bits;
};

// Before `cluster_meet`, by one thread.
__device__ inline void barrier_begin(Barrier* barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

__device__ inline void barrier_expect(Barrier* barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

__device__ inline void barrier_wait(Barrier* barrier, int phase) {
    unsigned done;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;"
                     " selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(shared_address(barrier)), "r"(phase)
                     : "memory");
    } while (!done);
}

// Stores 16 bytes in the block `rank`, where they count for its barrier.
__device__ inline void store_remote(float* at, int rank, float4 value, Barrier* barrier) {
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                     remote_address(at, rank)),
                 "r"(__float_as_uint(value.x)), "r"(__float_as_uint(value.y)), "r"(__float_as_uint(value.z)),
                 "r"(__float_as_uint(value.w)), "r"(remote_address(barrier, rank))
                 : "memory");
}
#endif
