/* sort.cu - see sort.h. A pass sorts by eight bits: each block counts the
 * digits of its tile, one block adds the counts up, each block puts its keys
 * where they belong. A warp has a stretch of the tile and goes through it in
 * order. */
#include "runtime/device/cuda/sort.h"

#include "runtime/device/cuda/block.h"

enum { DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS };
enum { WARPS = FL_THREADS / FL_WARP, ROUNDS = 8, STRETCH = ROUNDS * FL_WARP };
enum { TILE = WARPS * STRETCH };

static int64_t tiles_of(int64_t most)
{
    return (most + TILE - 1) / TILE;
}

/* --- scan ----------------------------------------------------------------- */

__global__ static void scan_all(uint32_t *x, int64_t n, int64_t *total)
{
    __shared__ uint32_t sums[FL_THREADS];
    int64_t each = (n + blockDim.x - 1) / blockDim.x;
    int64_t first = each * threadIdx.x, last = first + each;
    uint32_t sum = 0, before = 0;

    last = last < n ? last : n;
    for (int64_t i = first; i < last; i++)
        sum += x[i];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (unsigned i = 0; i < threadIdx.x; i++)
        before += sums[i];
    for (int64_t i = first; i < last; i++) {
        uint32_t here = x[i];

        x[i] = before;
        before += here;
    }
    if (total && threadIdx.x == blockDim.x - 1)
        *total = before;
}

fleet_status fl_scan(fl_queue *q, uint32_t *x, int64_t n, int64_t *total)
{
    return FL_LAUNCH(scan_all, 1, FL_THREADS, 0, q, x, n, total);
}

/* --- passes --------------------------------------------------------------- */

/* The keys as they are, and where. Past *n they are the greatest, so that they
 * stay behind. */
__global__ static void number(const uint64_t *key, const int64_t *n,
                              int64_t most, fl_sorted out)
{
    FL_EACH(i, most)
    {
        out.key[i] = i < *n ? key[i] : UINT64_MAX;
        out.position[i] = (uint32_t)i;
    }
}

__device__ static unsigned digit_of(uint64_t key, int shift)
{
    return (unsigned)(key >> shift) & (DIGITS - 1);
}

/* count[digit][tile] */
__global__ static void count_digits(uint32_t *count, const uint64_t *key,
                                    int64_t most, int shift)
{
    __shared__ unsigned digits[DIGITS];
    int64_t first = (int64_t)blockIdx.x * TILE;

    for (int i = (int)threadIdx.x; i < DIGITS; i += FL_THREADS)
        digits[i] = 0;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < TILE && first + i < most;
         i += FL_THREADS)
        atomicAdd(&digits[digit_of(key[first + i], shift)], 1u);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < DIGITS; i += FL_THREADS)
        count[(int64_t)i * gridDim.x + blockIdx.x] = digits[i];
}

/* Where each warp's keys of each digit go: place[warp][digit]. */
__device__ static void find_places(unsigned (*place)[DIGITS + 1],
                                   const uint32_t *count, const uint64_t *key,
                                   int64_t first, int64_t most, int shift)
{
    unsigned warp = threadIdx.x / FL_WARP, lane = threadIdx.x % FL_WARP;

    for (unsigned i = threadIdx.x; i < WARPS * (DIGITS + 1); i += FL_THREADS)
        place[i / (DIGITS + 1)][i % (DIGITS + 1)] = 0;
    __syncthreads();
    for (unsigned r = 0; r < ROUNDS; r++) {
        int64_t i = first + warp * STRETCH + r * FL_WARP + lane;

        if (i < most)
            atomicAdd(&place[warp][digit_of(key[i], shift)], 1u);
    }
    __syncthreads();
    for (unsigned d = threadIdx.x; d < DIGITS; d += FL_THREADS) {
        unsigned at = count[(int64_t)d * gridDim.x + blockIdx.x];

        for (int w = 0; w < WARPS; w++) {
            unsigned here = place[w][d];

            place[w][d] = at;
            at += here;
        }
    }
    __syncthreads();
}

__global__ static void put_in_place(fl_sorted to, fl_sorted from,
                                    const uint32_t *count, int64_t most,
                                    int shift)
{
    __shared__ unsigned place[WARPS][DIGITS + 1];
    unsigned warp = threadIdx.x / FL_WARP, lane = threadIdx.x % FL_WARP;
    int64_t first = (int64_t)blockIdx.x * TILE;

    find_places(place, count, from.key, first, most, shift);
    for (unsigned r = 0; r < ROUNDS; r++) {
        int64_t i = first + warp * STRETCH + r * FL_WARP + lane;
        uint64_t key = i < most ? from.key[i] : 0;
        unsigned digit = i < most ? digit_of(key, shift) : (unsigned)DIGITS;
        unsigned same = __match_any_sync(FL_ALL_LANES, digit);
        unsigned before = (unsigned)__popc(same & ((1u << lane) - 1));
        unsigned at = place[warp][digit] + before;

        __syncwarp();
        if (before == 0)
            place[warp][digit] += (unsigned)__popc(same);
        __syncwarp();
        if (i < most) {
            to.key[at] = key;
            to.position[at] = from.position[i];
        }
    }
}

/* --- all of it ------------------------------------------------------------ */

static size_t keys_bytes(int64_t most)
{
    return fl_padded((size_t)most * sizeof(uint64_t));
}

static size_t positions_bytes(int64_t most)
{
    return fl_padded((size_t)most * sizeof(uint32_t));
}

size_t fl_sort_scratch(int64_t most)
{
    return 2 * (keys_bytes(most) + positions_bytes(most)) +
           fl_padded((size_t)tiles_of(most) * DIGITS * sizeof(uint32_t));
}

static fl_sorted half_of(char *scratch, int64_t most, int which)
{
    char *at =
        scratch + (size_t)which * (keys_bytes(most) + positions_bytes(most));

    return {reinterpret_cast<uint64_t *>(at),
            reinterpret_cast<uint32_t *>(at + keys_bytes(most))};
}

fleet_status fl_sort(fl_queue *q, const uint64_t *key, const int64_t *n,
                     int64_t most, int bits, void *scratch, fl_sorted *out)
{
    char *base = static_cast<char *>(scratch);
    fl_sorted from = half_of(base, most, 0), to = half_of(base, most, 1);
    uint32_t *count = reinterpret_cast<uint32_t *>(
        base + 2 * (keys_bytes(most) + positions_bytes(most)));
    unsigned tiles = (unsigned)tiles_of(most);

    FL_TRY(FL_LAUNCH_EACH(number, most, q, key, n, most, from));
    for (int shift = 0; shift < bits; shift += DIGIT_BITS) {
        fl_sorted other = from;

        FL_TRY(FL_LAUNCH(count_digits, tiles, FL_THREADS, 0, q, count,
                         static_cast<const uint64_t *>(from.key), most, shift));
        FL_TRY(fl_scan(q, count, (int64_t)tiles * DIGITS, nullptr));
        FL_TRY(FL_LAUNCH(put_in_place, tiles, FL_THREADS, 0, q, to, from,
                         static_cast<const uint32_t *>(count), most, shift));
        from = to;
        to = other;
    }
    *out = from;
    return FLEET_OK;
}
