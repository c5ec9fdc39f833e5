/* sort.cu - see sort.h. A pass sorts by eight bits: the digits of each tile are
 * counted, then its block puts its keys where they belong, for which it adds up
 * the counts of all tiles. The first pass has a kernel that counts; each pass
 * counts for the next one, in the tiles where it puts the keys. Of many tiles
 * the counts are added up by fl_scan(), and each pass counts by itself. A warp
 * has a stretch of the tile and goes through it in order. A digit that all keys
 * have in common changes no order, and its pass does nothing: ids below a
 * million differ in three of their eight digits. */
#include "runtime/device/cuda/sort.h"

#include "runtime/device/cuda/scan_cuda.h"

enum { DIGIT_BITS = 8, DIGITS = 1 << DIGIT_BITS };
enum { WARPS = FL_THREADS / FL_WARP };

/* Tiles of few keys are small, so that many blocks have one. */
enum { FEW_ROUNDS = 2, MOST_ROUNDS = 8, FEW_KEYS = 1 << 16 };

static int rounds_of(int64_t most)
{
    return most <= FEW_KEYS ? FEW_ROUNDS : MOST_ROUNDS;
}

static int64_t tiles_of(int64_t most)
{
    int64_t tile = (int64_t)rounds_of(most) * FL_THREADS;

    return (most + tile - 1) / tile;
}

/* --- passes --------------------------------------------------------------- */

/* What is sorted: keys as they came, of which those past *n are the greatest,
 * so that they stay behind; and two arrays that passes fill in turn, so that
 * the last one fills the first. */
struct sorting {
    const uint64_t *key;
    const int64_t *n;
    int64_t most;
    int bits;
    fl_sorted half[2];
    unsigned long long *tile_differs; /* by tile: bits in which keys differ */
    unsigned long long *differs;      /* of all; the first pass writes it */
    uint32_t *count;                  /* of each digit, by tile, COUNTS times */
    const uint32_t *place; /* counts added up; NULL: each block does it */
};

/* A pass reads its counts, adds up the counts of the next pass, which begin as
 * 0, and clears the ones that are used after that. */
enum { COUNTS = 3 };

__device__ static uint32_t *counts_of(const sorting &all, int pass)
{
    return all.count + (int64_t)(pass % COUNTS) * gridDim.x * DIGITS;
}

/* The first pass always runs. */
__device__ static bool has_pass(uint64_t differs, int shift)
{
    return shift == 0 || (differs >> shift) % DIGITS != 0;
}

__device__ static int passes_from(const sorting &all, uint64_t differs,
                                  int shift)
{
    int n = 0;

    for (; shift == 0 || shift < all.bits; shift += DIGIT_BITS)
        n += has_pass(differs, shift);
    return n;
}

/* The digit of the pass that follows; -1: none does. */
__device__ static int next_shift(const sorting &all, uint64_t differs,
                                 int shift)
{
    do
        shift += DIGIT_BITS;
    while (shift < all.bits && !has_pass(differs, shift));
    return shift < all.bits ? shift : -1;
}

/* What a pass sorts, and where to. */
struct sort_pass {
    const uint64_t *key;
    const uint32_t *position; /* NULL: the first pass */
    int64_t n;                /* of the first pass; else all are keys */
    fl_sorted to;
    int number; /* from 0; a pass that does nothing has none */
    __device__ uint64_t key_at(int64_t i) const
    {
        return position || i < n ? key[i] : UINT64_MAX;
    }
    __device__ uint32_t position_at(int64_t i) const
    {
        return position ? position[i] : (uint32_t)i;
    }
};

__device__ static sort_pass pass_of(const sorting &all, uint64_t differs,
                                    int shift)
{
    int left = passes_from(all, differs, shift);
    const fl_sorted &from = all.half[left % 2], &to = all.half[(left - 1) % 2];

    if (shift == 0)
        return {all.key, nullptr, *all.n, to, 0};
    return {from.key, from.position, 0, to,
            passes_from(all, differs, 0) - left};
}

__device__ static unsigned digit_of(uint64_t key, int shift)
{
    return (unsigned)(key >> shift) & (DIGITS - 1);
}

/* Counts lie by digit where fl_scan() adds them up, else by tile. */
__device__ static int64_t count_at(const sorting &all, unsigned digit,
                                   unsigned tile)
{
    return all.place ? (int64_t)digit * gridDim.x + tile
                     : (int64_t)tile * DIGITS + digit;
}

/* The bits in which the keys of this tile differ from the first of all. */
__device__ static void find_differences(const sorting &all, int64_t first,
                                        int64_t end)
{
    __shared__ unsigned long long differs;
    unsigned long long own = 0;

    if (threadIdx.x == 0)
        differs = 0;
    __syncthreads();
    for (int64_t i = first + threadIdx.x; i < end; i += FL_THREADS)
        if (i < *all.n)
            own |= all.key[i] ^ all.key[0];
    for (int by = FL_WARP / 2; by > 0; by /= 2)
        own |= __shfl_xor_sync(FL_ALL_LANES, own, by);
    if (threadIdx.x % FL_WARP == 0)
        atomicOr(&differs, own);
    __syncthreads();
    if (threadIdx.x == 0)
        all.tile_differs[blockIdx.x] = differs;
}

/* Of all tiles; every thread gets it. */
__device__ static uint64_t all_differences(const sorting &all)
{
    __shared__ unsigned long long differs;

    if (threadIdx.x == 0)
        differs = 0;
    __syncthreads();
    for (unsigned i = threadIdx.x; i < gridDim.x; i += FL_THREADS)
        atomicOr(&differs, all.tile_differs[i]);
    __syncthreads();
    return differs;
}

__global__ static void count_digits(sorting all, int rounds, int shift)
{
    __shared__ unsigned digits[DIGITS];
    int64_t tile = (int64_t)rounds * FL_THREADS;
    int64_t first = (int64_t)blockIdx.x * tile;
    int64_t end = first + tile < all.most ? first + tile : all.most;

    if (shift > 0 && !has_pass(*all.differs, shift))
        return;
    sort_pass from = pass_of(all, shift > 0 ? *all.differs : 0, shift);

    if (shift == 0)
        find_differences(all, first, end);
    for (int i = (int)threadIdx.x; i < DIGITS; i += FL_THREADS)
        digits[i] = 0;
    __syncthreads();
    for (int64_t i = first + threadIdx.x; i < end; i += FL_THREADS)
        atomicAdd(&digits[digit_of(from.key_at(i), shift)], 1u);
    __syncthreads();
    for (int i = (int)threadIdx.x; i < DIGITS; i += FL_THREADS) {
        all.count[count_at(all, (unsigned)i, blockIdx.x)] = digits[i];
        if (!all.place)
            counts_of(all, 1)[count_at(all, (unsigned)i, blockIdx.x)] = 0;
    }
}

/* Counts of up to this many tiles are added up by each block for itself, so
 * many at once: they are on their way together. */
enum { FEW_TILES = 128, TOGETHER = 16 };
static_assert((int)DIGITS == (int)FL_THREADS, "a thread has a digit");

/* Where this block's keys of the thread's digit go. */
__device__ static unsigned begin_of_digit(const sorting &sort,
                                          const uint32_t *count)
{
    const unsigned digit = threadIdx.x;
    uint32_t all = 0, before = 0, total;

    if (sort.place)
        return sort.place[count_at(sort, digit, blockIdx.x)];
    for (unsigned t = 0; t < gridDim.x; t += TOGETHER) {
        uint32_t n[TOGETHER];

        for (unsigned i = 0; i < TOGETHER; i++)
            n[i] = t + i < gridDim.x ? count[count_at(sort, digit, t + i)] : 0;
        for (unsigned i = 0; i < TOGETHER; i++) {
            before += t + i < blockIdx.x ? n[i] : 0;
            all += n[i];
        }
    }
    return fl_sum_before(all, &total) + before;
}

/* The pass after this one begins by counts that are 0. */
__device__ static void clear_counts(const sorting &all, int pass)
{
    if (!all.place)
        counts_of(all, pass)[count_at(all, threadIdx.x, blockIdx.x)] = 0;
}

/* Where each warp's keys of each digit go: place[warp][digit]. */
template <int ROUNDS>
__device__ static void find_places(unsigned (*place)[DIGITS + 1],
                                   unsigned begin, const uint64_t *key,
                                   int64_t first, int64_t most, int shift)
{
    unsigned warp = threadIdx.x / FL_WARP;

    for (unsigned i = threadIdx.x; i < WARPS * (DIGITS + 1); i += FL_THREADS)
        place[i / (DIGITS + 1)][i % (DIGITS + 1)] = 0;
    __syncthreads();
    for (unsigned r = 0; r < ROUNDS; r++)
        if (first + r * FL_WARP < most)
            atomicAdd(&place[warp][digit_of(key[r], shift)], 1u);
    __syncthreads();
    for (int w = 0; w < WARPS; w++) {
        unsigned here = place[w][threadIdx.x];

        place[w][threadIdx.x] = begin;
        begin += here;
    }
    __syncthreads();
}

/* A thread's keys are FL_WARP apart. */
template <int ROUNDS>
__global__ static void put_in_place(sorting all, int shift)
{
    __shared__ unsigned place[WARPS][DIGITS + 1];
    unsigned warp = threadIdx.x / FL_WARP, lane = threadIdx.x % FL_WARP;
    int64_t first = (int64_t)blockIdx.x * ROUNDS * FL_THREADS +
                    warp * ROUNDS * FL_WARP + lane;
    uint64_t key[ROUNDS], differs;

    if (shift > 0 && !has_pass(*all.differs, shift))
        return;
    differs = shift > 0 ? *all.differs : all_differences(all);
    if (shift == 0 && blockIdx.x == 0 && threadIdx.x == 0)
        *all.differs = differs;
    sort_pass pass = pass_of(all, differs, shift);

    for (unsigned r = 0; r < ROUNDS; r++) {
        int64_t i = first + r * FL_WARP;

        key[r] = i < all.most ? pass.key_at(i) : 0;
    }
    int next = all.place ? -1 : next_shift(all, differs, shift);
    uint32_t *count = counts_of(all, pass.number + 1);

    clear_counts(all, pass.number + 2);
    find_places<ROUNDS>(place, begin_of_digit(all, counts_of(all, pass.number)),
                        key, first, all.most, shift);
    for (unsigned r = 0; r < ROUNDS; r++) {
        int64_t i = first + r * FL_WARP;
        bool is_one = i < all.most;
        unsigned digit = is_one ? digit_of(key[r], shift) : (unsigned)DIGITS;
        unsigned same = __match_any_sync(FL_ALL_LANES, digit);
        unsigned before = (unsigned)__popc(same & ((1u << lane) - 1));
        unsigned at = place[warp][digit] + before;

        __syncwarp();
        if (before == 0)
            place[warp][digit] += (unsigned)__popc(same);
        __syncwarp();
        if (is_one) {
            pass.to.key[at] = key[r];
            pass.to.position[at] = pass.position_at(i);
        }
        if (is_one && next >= 0) {
            unsigned tile = at / (ROUNDS * FL_THREADS);

            atomicAdd(&count[count_at(all, digit_of(key[r], next), tile)], 1u);
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

/* With the one of all tiles behind them. */
static size_t differs_bytes(int64_t most)
{
    return fl_padded((size_t)(tiles_of(most) + 1) * sizeof(uint64_t));
}

size_t fl_sort_scratch(int64_t most)
{
    return 2 * (keys_bytes(most) + positions_bytes(most)) +
           (COUNTS + 1) * counts_bytes(most) + differs_bytes(most) +
           fl_padded(fl_scan_scratch(tiles_of(most) * DIGITS));
}

/* Of the scratch, from *at on. */
template <class T> static T *take(char **at, size_t bytes)
{
    T *p = reinterpret_cast<T *>(*at);

    *at += bytes;
    return p;
}

static fleet_status run_pass(fl_queue *q, const sorting &all, uint32_t *place,
                             void *scan_scratch, int shift)
{
    unsigned tiles = (unsigned)tiles_of(all.most);
    int rounds = rounds_of(all.most);

    if (shift == 0 || all.place)
        FL_TRY(FL_LAUNCH(count_digits, tiles, FL_THREADS, 0, q, all, rounds,
                         shift));
    if (all.place)
        FL_TRY(fl_scan(q, fl_scan_value{all.count, place},
                       (int64_t)tiles * DIGITS, nullptr, scan_scratch));
    return rounds == FEW_ROUNDS ? FL_LAUNCH(put_in_place<FEW_ROUNDS>, tiles,
                                            FL_THREADS, 0, q, all, shift)
                                : FL_LAUNCH(put_in_place<MOST_ROUNDS>, tiles,
                                            FL_THREADS, 0, q, all, shift);
}

fleet_status fl_sort(fl_queue *q, const uint64_t *key, const int64_t *n,
                     int64_t most, int bits, void *scratch, fl_sorted *out)
{
    char *at = static_cast<char *>(scratch);
    sorting all = {key, n, most, bits, {}, nullptr, nullptr, nullptr, nullptr};
    uint32_t *place;

    for (fl_sorted &half : all.half) {
        half.key = take<uint64_t>(&at, keys_bytes(most));
        half.position = take<uint32_t>(&at, positions_bytes(most));
    }
    all.tile_differs = take<unsigned long long>(&at, differs_bytes(most));
    all.differs = all.tile_differs + tiles_of(most);
    all.count = take<uint32_t>(&at, COUNTS * counts_bytes(most));
    place = take<uint32_t>(&at, counts_bytes(most));
    all.place = tiles_of(most) > FEW_TILES ? place : nullptr;
    *out = all.half[0];
    for (int shift = 0; shift == 0 || shift < bits; shift += DIGIT_BITS)
        FL_TRY(run_pass(q, all, place, at, shift));
    return FLEET_OK;
}
