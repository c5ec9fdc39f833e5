/* sort.cu - see sort.h. A pass sorts by eight bits: each block counts the
 * digits of its tile, then puts its keys where they belong, for which it adds
 * up the counts of all blocks, unless these are many. A warp has a stretch of
 * the tile and goes through it in order. */
#include "runtime/device/cuda/sort.h"

#include "runtime/device/cuda/scan_cuda.h"

enum { DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS };
enum { WARPS = FL_THREADS / FL_WARP, ROUNDS = 8, STRETCH = ROUNDS * FL_WARP };
enum { TILE = WARPS * STRETCH };

static int64_t tiles_of(int64_t most)
{
    return (most + TILE - 1) / TILE;
}

/* --- passes --------------------------------------------------------------- */

/* What a pass sorts: at first the keys as they are, of which those past *n are
 * the greatest, so that they stay behind; then what the pass before has left.
 */
struct sort_source {
    const uint64_t *key;
    const uint32_t *position; /* NULL: the first pass */
    const int64_t *n;
    __device__ uint64_t key_at(int64_t i) const
    {
        return position || i < *n ? key[i] : UINT64_MAX;
    }
    __device__ uint32_t position_at(int64_t i) const
    {
        return position ? position[i] : (uint32_t)i;
    }
};

__device__ static unsigned digit_of(uint64_t key, int shift)
{
    return (unsigned)(key >> shift) & (DIGITS - 1);
}

/* count[digit][tile] */
__global__ static void count_digits(uint32_t *count, sort_source from,
                                    int64_t most, int shift)
{
    __shared__ unsigned digits[DIGITS];
    int64_t first = (int64_t)blockIdx.x * TILE;

    for (int i = (int)threadIdx.x; i < DIGITS; i += FL_THREADS)
        digits[i] = 0;
    __syncthreads();
    for (int i = (int)threadIdx.x; i < TILE && first + i < most;
         i += FL_THREADS)
        atomicAdd(&digits[digit_of(from.key_at(first + i), shift)], 1u);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < DIGITS; i += FL_THREADS)
        count[(int64_t)i * gridDim.x + blockIdx.x] = digits[i];
}

/* Counts of up to this many tiles are added up by each block for itself. */
enum { FEW_TILES = 128 };
static_assert((int)DIGITS == (int)FL_THREADS, "a thread has a digit");

/* Where this block's keys of the thread's digit go. */
__device__ static unsigned begin_of_digit(const uint32_t *count, bool added)
{
    const uint32_t *of = count + (int64_t)threadIdx.x * gridDim.x;
    uint32_t all = 0, before = 0, total;

    if (added)
        return of[blockIdx.x];
    for (unsigned t = 0; t < gridDim.x; t++) {
        uint32_t n = of[t];

        before += t < blockIdx.x ? n : 0;
        all += n;
    }
    return fl_sum_before(all, &total) + before;
}

/* Where each warp's keys of each digit go: place[warp][digit]. */
__device__ static void find_places(unsigned (*place)[DIGITS + 1],
                                   unsigned begin, const sort_source &from,
                                   int64_t first, int64_t most, int shift)
{
    unsigned warp = threadIdx.x / FL_WARP, lane = threadIdx.x % FL_WARP;

    for (unsigned i = threadIdx.x; i < WARPS * (DIGITS + 1); i += FL_THREADS)
        place[i / (DIGITS + 1)][i % (DIGITS + 1)] = 0;
    __syncthreads();
    for (unsigned r = 0; r < ROUNDS; r++) {
        int64_t i = first + warp * STRETCH + r * FL_WARP + lane;

        if (i < most)
            atomicAdd(&place[warp][digit_of(from.key_at(i), shift)], 1u);
    }
    __syncthreads();
    for (int w = 0; w < WARPS; w++) {
        unsigned here = place[w][threadIdx.x];

        place[w][threadIdx.x] = begin;
        begin += here;
    }
    __syncthreads();
}

__global__ static void put_in_place(fl_sorted to, sort_source from,
                                    const uint32_t *count, bool added,
                                    int64_t most, int shift)
{
    __shared__ unsigned place[WARPS][DIGITS + 1];
    unsigned warp = threadIdx.x / FL_WARP, lane = threadIdx.x % FL_WARP;
    int64_t first = (int64_t)blockIdx.x * TILE;

    find_places(place, begin_of_digit(count, added), from, first, most, shift);
    for (unsigned r = 0; r < ROUNDS; r++) {
        int64_t i = first + warp * STRETCH + r * FL_WARP + lane;
        uint64_t key = i < most ? from.key_at(i) : 0;
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
            to.position[at] = from.position_at(i);
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

static size_t counts_bytes(int64_t most)
{
    return fl_padded((size_t)tiles_of(most) * DIGITS * sizeof(uint32_t));
}

size_t fl_sort_scratch(int64_t most)
{
    return 2 * (keys_bytes(most) + positions_bytes(most) + counts_bytes(most)) +
           fl_padded(fl_scan_scratch(tiles_of(most) * DIGITS));
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
    fl_sorted to = half_of(base, most, 0), other = half_of(base, most, 1);
    char *counts = base + 2 * (keys_bytes(most) + positions_bytes(most));
    uint32_t *count = reinterpret_cast<uint32_t *>(counts);
    uint32_t *place = reinterpret_cast<uint32_t *>(counts + counts_bytes(most));
    unsigned tiles = (unsigned)tiles_of(most);
    bool adds = tiles > FEW_TILES;
    sort_source from = {key, nullptr, n};

    for (int shift = 0; shift == 0 || shift < bits; shift += DIGIT_BITS) {
        FL_TRY(FL_LAUNCH(count_digits, tiles, FL_THREADS, 0, q, count, from,
                         most, shift));
        if (adds)
            FL_TRY(fl_scan(q, place, fl_scan_value{count},
                           (int64_t)tiles * DIGITS, nullptr,
                           counts + 2 * counts_bytes(most)));
        FL_TRY(FL_LAUNCH(put_in_place, tiles, FL_THREADS, 0, q, to, from,
                         static_cast<const uint32_t *>(adds ? place : count),
                         adds, most, shift));
        from = {to.key, to.position, n};
        *out = to;
        to = other;
        other = *out;
    }
    return FLEET_OK;
}
