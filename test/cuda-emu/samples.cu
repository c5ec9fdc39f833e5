/* samples.cu - see samples.h. */
#include "cuda-emu/samples.h"

#include "runtime/device/cuda/block.h"

static const char *text_of_last()
{
    return cudaGetErrorString(cudaGetLastError());
}

#define START(kernel, grid, block, shared, ...)                                \
    (FL_START_KERNEL(kernel, grid, block, shared, nullptr, __VA_ARGS__),       \
     text_of_last())

__global__ static void tree_sum(float *out, const float *x, int with_barrier)
{
    FL_BLOCK_MEMORY(float, part);
    __shared__ float same[SAMPLE_THREADS];
    int i = (int)threadIdx.x;

    part[i] = same[i] = x[i];
    for (int by = SAMPLE_THREADS / 2; by > 0; by /= 2) {
        if (with_barrier)
            __syncthreads();
        if (i < by) {
            part[i] += part[i + by];
            same[i] += same[i + by];
        }
    }
    __syncthreads();
    out[i] = part[0] == same[0] ? part[0] : -1;
}

const char *sample_tree_sum(float *out, const float *x, int with_barrier)
{
    return START(tree_sum, 1, SAMPLE_THREADS, SAMPLE_THREADS * sizeof(float),
                 out, x, with_barrier);
}

__global__ static void shuffles(int *out)
{
    int i = (int)threadIdx.x, lane = i % 32, *at = out + i * 8;
    unsigned half = lane < 16 ? 0xffffu : 0xffff0000u;

    at[0] = __shfl_sync(FL_ALL_LANES, i, 5);
    at[1] = __shfl_down_sync(FL_ALL_LANES, i, 3);
    at[2] = __shfl_up_sync(FL_ALL_LANES, i, 1, 8);
    at[3] = __shfl_xor_sync(half, i, 1);
    at[4] = (int)__ballot_sync(FL_ALL_LANES, lane % 3 == 0);
    at[5] = __any_sync(half, lane == 20) * 2 + __all_sync(half, lane < 16);
    at[6] = (int)__match_any_sync(FL_ALL_LANES, lane / 4);
    at[7] = fl_warp_sum(lane);
}

const char *sample_shuffles(int *out)
{
    return START(shuffles, 1, SAMPLE_THREADS, 0, out);
}

__global__ static void indices(int *out)
{
    int thread = (int)((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x +
                       threadIdx.x);
    int block = (int)(blockIdx.y * gridDim.x + blockIdx.x);

    out[block * 16 + thread] = block * 100 + thread;
}

const char *sample_indices(int *out)
{
    return START(indices, dim3(2, 3), dim3(4, 2, 2), 0, out);
}

__global__ static void atomics(int *out)
{
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);

    atomicAdd(&out[0], i);
    atomicMax(&out[1], i);
    atomicMin(&out[2], -i);
    atomicExch(&out[3], 7);
    atomicCAS(&out[4], 0, 1 + i);
}

const char *sample_atomics(int *out)
{
    return START(atomics, 2, 50, 0, out);
}

__global__ static void plain_loop(float *x, int n)
{
    FL_EACH(i, n)
    x[i] += 1;
}

const char *sample_plain_loop(float *x, int n)
{
    return START(plain_loop, fl_blocks(n), FL_THREADS, 0, x, n);
}

__global__ static void half_at_barrier(int threads)
{
    if ((int)threadIdx.x < threads)
        __syncthreads();
}

const char *sample_half_at_barrier(void)
{
    return START(half_at_barrier, 1, SAMPLE_THREADS, 0, 10);
}

__global__ static void shuffle_with(unsigned mask, int from)
{
    __shfl_sync(mask, 0, from);
}

const char *sample_mask_too_wide(void)
{
    return START(shuffle_with, 1, 20, 0, FL_ALL_LANES, 0);
}

const char *sample_not_in_mask(void)
{
    return START(shuffle_with, 1, 32, 0, 0xffu, 0);
}

__global__ static void reads_outside(unsigned mask)
{
    if (threadIdx.x < 8)
        __shfl_sync(mask, 0, 9);
}

const char *sample_reads_outside_mask(void)
{
    return START(reads_outside, 1, 32, 0, 0xffu);
}

__global__ static void lanes_apart(int at)
{
    if ((int)threadIdx.x < at)
        __syncwarp();
}

const char *sample_lanes_apart(void)
{
    return START(lanes_apart, 1, 32, 0, 16);
}

const char *sample_threads(int threads)
{
    return START(half_at_barrier, 1, (unsigned)threads, 0, 0);
}

const char *sample_shared(int bytes)
{
    return START(half_at_barrier, 1, 32, (size_t)bytes, 0);
}

const char *sample_no_blocks(void)
{
    return START(half_at_barrier, dim3(0), 32, 0, 0);
}
