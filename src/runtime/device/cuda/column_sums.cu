/* column_sums.cu - see column_sums.h. A block has TILE columns of up to
 * BLOCK_ROWS rows; blocks of the same columns each leave their sums, and the
 * last of them to come adds these up, in the order of the rows. */
#include "runtime/device/cuda/column_sums.h"

#include "runtime/device/cuda/half_float_cuda.h"

enum { TILE = 32, TILE_ROWS = 8, BLOCK_ROWS = 64, MOST_PARTS = 64 };

static int64_t rows_of_part(int64_t rows)
{
    int64_t n = (rows + MOST_PARTS - 1) / MOST_PARTS;

    return n > BLOCK_ROWS ? n : (int64_t)BLOCK_ROWS;
}

static unsigned parts_of(int64_t rows)
{
    int64_t each = rows_of_part(rows);

    return (unsigned)((rows + each - 1) / each);
}

static unsigned tiles_of(int64_t cols)
{
    return (unsigned)((cols + TILE - 1) / TILE);
}

fleet_status fl_column_sums_prepare(fl_device *d, fl_queue *q, int64_t rows,
                                    int64_t cols, fl_column_sums *s)
{
    const size_t counts = tiles_of(cols) * sizeof(unsigned);
    const size_t sums = (size_t)cols * parts_of(rows) * sizeof(float);
    void *made;

    if (parts_of(rows) == 1 || s->left)
        return FLEET_OK;
    FL_TRY(d->methods->alloc(d, q, sums + counts, &made));
    s->left = static_cast<float *>(made);
    s->arrived = reinterpret_cast<unsigned *>(s->left + cols * parts_of(rows));
    return d->methods->fill(d, q, s->arrived, 0, counts);
}

void fl_column_sums_done(fl_device *d, fl_column_sums *s)
{
    d->methods->free(d, nullptr, s->left);
    *s = {};
}

/* The sum of rows [first, last) of x in the column of each threadIdx.x; threads
 * with threadIdx.y 0 get it. */
template <class T>
__device__ static float sum_rows(const T *x, int64_t first, int64_t last,
                                 int64_t col, int64_t cols, int64_t ld)
{
    __shared__ float part[TILE_ROWS][TILE];
    float sum = 0.0f;

    for (int64_t r = first + threadIdx.y; r < last && col < cols;
         r += TILE_ROWS)
        sum += fl_load(x[r * ld + col]);
    part[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    for (int i = 1; threadIdx.y == 0 && i < TILE_ROWS; i++)
        sum += part[i][threadIdx.x];
    __syncthreads();
    return sum;
}

/* Is it the last block of its tile? Then what all blocks left can be read. */
__device__ static bool comes_last(unsigned *arrived)
{
    __shared__ bool last;

    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0) {
        last = atomicAdd(arrived, 1u) == gridDim.y - 1;
        if (last)
            *arrived = 0;
    }
    __syncthreads();
    __threadfence();
    return last;
}

template <class T>
__global__ static void sum_columns(float *to, float *left, unsigned *arrived,
                                   const T *x, int64_t rows, int64_t each,
                                   int64_t cols, int64_t ld)
{
    int64_t col = (int64_t)blockIdx.x * TILE + threadIdx.x;
    int64_t first = (int64_t)blockIdx.y * each;
    int64_t last = first + each < rows ? first + each : rows;
    bool writes = threadIdx.y == 0 && col < cols;
    float sum = sum_rows(x, first, last, col, cols, ld);

    if (gridDim.y > 1) {
        if (writes)
            left[(int64_t)blockIdx.y * cols + col] = sum;
        if (!comes_last(&arrived[blockIdx.x]))
            return;
        sum = sum_rows(static_cast<const float *>(left), 0, gridDim.y, col,
                       cols, cols);
    }
    if (writes)
        to[col] = sum;
}

fleet_status fl_cuda_sum_columns(fl_queue *q, const fl_column_sums *s,
                                 fleet_dtype dtype, const void *x, int64_t ld,
                                 int64_t rows, int64_t cols, float *to)
{
    dim3 grid(tiles_of(cols), parts_of(rows));

    return fl_by_dtype(dtype, [=](auto zero) {
        using T = decltype(zero);
        return FL_LAUNCH(sum_columns<T>, grid, dim3(TILE, TILE_ROWS), 0, q, to,
                         s->left, s->arrived, static_cast<const T *>(x), rows,
                         rows_of_part(rows), cols, ld);
    });
}
