// What NVRTC knows and a host's compiler does not: tests/support/emulation has another file of this name.
#pragma once

#define SHARED_MEMORY(type, name) extern __shared__ type name[]

// Clusters of thread blocks, from compute capability 9.0 on. An address of one's own shared memory stands for the same
// place in that of the block `rank` of the cluster.
#if __CUDA_ARCH__ >= 900
#define CLUSTER_OF(blocks) __cluster_dims__(blocks, 1, 1)

__device__ inline int cluster_rank() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return (int)rank;
}

__device__ inline void store_remote(float* at, int rank, float4 value) {
    unsigned address;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"((unsigned)__cvta_generic_to_shared(at)), "r"(rank));
    asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};"
                 :
                 : "r"(address), "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w)
                 : "memory");
}

// Stores before `cluster_arrive` are seen by every thread of the cluster after the `cluster_wait` that follows it.
__device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.release;" ::: "memory"); }
__device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }
#endif
