/* text_kernels_simd.c - the kernels, compiled once per instruction set; what is
 * plain C becomes vectors in the compiler's hands. */
#include "data/text/text_kernels.h"
#include "data/text/scan_vec.h"

#if FL_VBMI2
#define TABLE    fl_kernels_vbmi2
#define ISA_NAME "vbmi2"
#elif FL_ISA == 512
#define TABLE    fl_kernels_avx512
#define ISA_NAME "avx512"
#elif FL_ISA == 256
#define TABLE    fl_kernels_avx2
#define ISA_NAME "avx2"
#else
#define TABLE    fl_kernels_plain
#define ISA_NAME "plain"
#endif

FL_TARGET static int scan_byte(const char *text, uint32_t size, char one,
                               int enough, uint32_t *at)
{
    int n = 0;

    for (uint32_t i = 0; i < size && n < enough; i += 64)
        n += put_places(first_bits(match_byte(text + i, one), size - i), i,
                        at + n);
    return n;
}

/* --- tokens --------------------------------------------------------------- */

FL_TARGET static int scan_tokens(const char *text, uint32_t size, bool at_end,
                                 fl_tokens *t)
{
    uint32_t *at = t->at + 1;
    int n = 0;

    t->at[0] = UINT32_MAX;
    for (uint32_t i = 0; i < size; i += 64)
        n += put_places(first_bits(match_blank(text + i), size - i), i, at + n);
    if (at_end)
        at[n++] = size;
    for (int i = 0; i < 3 * FL_READ_SLACK; i++)
        at[n + i] = size; /* empty tokens fill up the last vectors */
    return n;
}

#if FL_ISA == 512

/* Eight tokens. word: the last eight characters of each, '0' in place of the
 * characters before a shorter token. size: how many it has. ok: 1 to 8. */
typedef struct tokens8 {
    __m512i word, size;
    __mmask8 ok;
} tokens8;

static inline tokens8 load_tokens(const char *text, __m256i before, __m256i end)
{
    const __m512i one = _mm512_set1_epi64(1), most = _mm512_set1_epi64(8);
    const __m512i zeros = _mm512_set1_epi8('0');
    __m512i keep;
    tokens8 e;

    e.size = _mm512_sub_epi64(
        _mm512_cvtepu32_epi64(_mm256_sub_epi32(end, before)), one);
    e.ok = _mm512_cmplt_epu64_mask(_mm512_sub_epi64(e.size, one), most);
    keep =
        _mm512_sllv_epi64(_mm512_set1_epi64(-1),
                          _mm512_slli_epi64(_mm512_sub_epi64(most, e.size), 3));
    e.word = _mm512_or_si512(
        _mm512_and_si512(_mm512_i32gather_epi64(end, text - 8, 1), keep),
        _mm512_andnot_si512(keep, zeros));
    return e;
}

/* A minus that a token begins with becomes a zero. */
static inline __mmask8 take_minus(tokens8 *e)
{
    const __m512i most = _mm512_set1_epi64(8), one = _mm512_set1_epi64(1);
    const __m512i change = _mm512_set1_epi64('-' ^ '0');
    __m512i shift = _mm512_slli_epi64(_mm512_sub_epi64(most, e->size), 3);
    __m512i minus = _mm512_sllv_epi64(_mm512_set1_epi64('-'), shift);
    __m512i first = _mm512_sllv_epi64(_mm512_set1_epi64(0xFF), shift);
    __mmask8 found = _mm512_mask_cmpeq_epi64_mask(
        e->ok, _mm512_and_si512(e->word, first), minus);

    e->word = _mm512_mask_xor_epi64(e->word, found, e->word,
                                    _mm512_sllv_epi64(change, shift));
    e->size = _mm512_mask_sub_epi64(e->size, found, e->size, one);
    e->ok &= _mm512_test_epi64_mask(e->size, e->size);
    return found;
}

/* As fl_take_point(); a point alone is no number. Digits behind the points. */
static inline __m512i take_points(tokens8 *e)
{
    const __m512i one = _mm512_set1_epi64(1);
    const __m512i order = _mm512_set1_epi64(0x0706050403020100);
    __m512i t = _mm512_xor_si512(e->word, _mm512_set1_epi8('.'));
    __m512i found = _mm512_and_si512(
        _mm512_andnot_si512(t, _mm512_sub_epi64(t, _mm512_set1_epi8(1))),
        _mm512_set1_epi8((char)0x80));
    __m512i point = _mm512_and_si512(
        found, _mm512_sub_epi64(_mm512_setzero_si512(), found));
    __m512i bit = _mm512_srli_epi64(point, 7);
    __m512i below = _mm512_and_si512(e->word, _mm512_sub_epi64(bit, one));
    __m512i above = _mm512_andnot_si512(
        _mm512_sub_epi64(_mm512_slli_epi64(point, 1), one), e->word);
    __mmask8 any = _mm512_test_epi64_mask(point, point);

    e->ok &= (__mmask8)~_mm512_mask_cmpeq_epi64_mask(any, e->size, one);
    e->word = _mm512_mask_or_epi64(
        e->word, any, _mm512_or_si512(above, _mm512_set1_epi64('0')),
        _mm512_slli_epi64(below, 8));
    return _mm512_srli_epi64(_mm512_mullo_epi64(bit, order), 56);
}

/* As fl_eight_digits(), of characters. */
static inline __m512i eight_digits(tokens8 *e)
{
    __m512i y = _mm512_xor_si512(e->word, _mm512_set1_epi8('0'));
    __m512i high = _mm512_or_si512(
        y, _mm512_add_epi8(y, _mm512_set1_epi8((char)(0x80 - 10))));
    __m512i two = _mm512_maddubs_epi16(y, _mm512_set1_epi16(10 | 1 << 8));
    __m512i four = _mm512_madd_epi16(two, _mm512_set1_epi32(100 | 1 << 16));

    e->ok &= _mm512_testn_epi64_mask(high, _mm512_set1_epi8((char)0x80));
    return _mm512_add_epi64(_mm512_mul_epu32(four, _mm512_set1_epi64(10000)),
                            _mm512_srli_epi64(four, 32));
}

/* Bits of the lanes from i on that are not ok, below n. */
static inline uint64_t not_ok(__mmask8 ok, int i, int n)
{
    return first_bits((uint64_t)(uint8_t)~ok << i, (uint32_t)n);
}

static uint64_t read_ids(const char *text, const uint32_t *at, int n,
                         uint64_t *out)
{
    uint64_t bad = 0;

    for (int i = 0; i < n; i += 8) {
        tokens8 e = load_tokens(text, load_half(at + i), load_half(at + i + 1));

        _mm512_storeu_si512(out + i, eight_digits(&e));
        bad |= not_ok(e.ok, i, n);
    }
    return bad;
}

/* Every other one of sixteen places, from the first on. */
static inline __m256i every_other(const uint32_t *at)
{
    return _mm512_cvtepi64_epi32(_mm512_loadu_si512(at));
}

static uint64_t read_single_ids(const char *text, const uint32_t *at, int n,
                                uint64_t *out)
{
    const __m256i two = _mm256_set1_epi32(2);
    const __m256i byte = _mm256_set1_epi32(0xFF);
    uint64_t bad = 0;

    for (int i = 0; i < n; i += 8) {
        __m256i before = every_other(at + 2 * i);
        __m256i middle = every_other(at + 2 * i + 1);
        tokens8 e = load_tokens(text, middle, every_other(at + 2 * i + 2));
        __m256i count = _mm256_and_si256(
            _mm256_i32gather_epi32((const int *)(const void *)(text - 1),
                                   middle, 1),
            byte);

        _mm512_storeu_si512(out + i, eight_digits(&e));
        e.ok &= _mm256_cmpeq_epi32_mask(count, _mm256_set1_epi32('1')) &
                _mm256_cmpeq_epi32_mask(_mm256_sub_epi32(middle, before), two);
        bad |= not_ok(e.ok, i, n);
    }
    return bad;
}

/* As fl_parse_short_float(). Times 1e-3 is not the same as over 1e3, but close
 * enough to tell the float that is meant where that is not in doubt. */
static uint64_t read_floats(const char *text, const uint32_t *at, int n,
                            float *out)
{
    const __m512d tenth =
        _mm512_set_pd(1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1e0);
    const __m512i low = _mm512_set1_epi64(0x1FFFFFFF);
    const __m512i doubt = _mm512_set1_epi64(0x10000000 - 4);
    uint64_t bad = 0;

    for (int i = 0; i < n; i += 8) {
        tokens8 e = load_tokens(text, load_half(at + i), load_half(at + i + 1));
        __mmask8 minus = take_minus(&e);
        __m512i places = take_points(&e);
        __m512d d = _mm512_mul_pd(_mm512_cvtepi64_pd(eight_digits(&e)),
                                  _mm512_permutexvar_pd(places, tenth));
        __m512i rest = _mm512_and_si512(_mm512_castpd_si512(d), low);

        d = _mm512_mask_xor_pd(d, minus, d, _mm512_set1_pd(-0.0));
        _mm256_storeu_ps(out + i, _mm512_cvtpd_ps(d));
        e.ok &= _mm512_cmpgt_epu64_mask(_mm512_sub_epi64(rest, doubt),
                                        _mm512_set1_epi64(8));
        bad |= not_ok(e.ok, i, n);
    }
    return bad;
}

#else

static uint64_t read_ids(const char *text, const uint32_t *at, int n,
                         uint64_t *out)
{
    uint64_t bad = 0;

    for (int i = 0; i < n; i++)
        if (!fl_parse_short_u64(text + (at[i] + 1), text + at[i + 1], &out[i]))
            bad |= (uint64_t)1 << i;
    return bad;
}

static uint64_t read_single_ids(const char *text, const uint32_t *at, int n,
                                uint64_t *out)
{
    uint64_t bad = 0;

    for (int i = 0; i < n; i++) {
        uint32_t before = at[2 * i], middle = at[2 * i + 1];

        if (middle - before != 2 || text[middle - 1] != '1' ||
            !fl_parse_short_u64(text + middle + 1, text + at[2 * i + 2],
                                &out[i]))
            bad |= (uint64_t)1 << i;
    }
    return bad;
}

static uint64_t read_floats(const char *text, const uint32_t *at, int n,
                            float *out)
{
    uint64_t bad = 0;

    for (int i = 0; i < n; i++)
        if (!fl_parse_short_float(text + (at[i] + 1), text + at[i + 1],
                                  &out[i]))
            bad |= (uint64_t)1 << i;
    return bad;
}

#endif

/* --- Criteo's lines ------------------------------------------------------- */

/* Bit i: the text of id i is not eight bytes long. end[i] is where the cell
 * before it ends. */
static uint64_t odd_texts(const uint32_t *end)
{
    uint64_t odd = 0;

#if FL_ISA == 512
    const __m512i nine = _mm512_set1_epi32(9);

    for (int i = 0; i < FL_CRITEO_IDS; i += 16) {
        __m512i length = _mm512_sub_epi32(_mm512_loadu_si512(end + i + 1),
                                          _mm512_loadu_si512(end + i));

        odd |= (uint64_t)_mm512_cmpneq_epi32_mask(length, nine) << i;
    }
    odd &= ((uint64_t)1 << FL_CRITEO_IDS) - 1;
#else
    for (int i = 0; i < FL_CRITEO_IDS; i++)
        odd |= (uint64_t)(end[i + 1] - end[i] != 9) << i;
#endif
    return odd;
}

FL_TARGET static int criteo_cut(const char *text, uint32_t size,
                                fl_criteo_tile *tile, int row)
{
    uint32_t *end = tile->end[row];
    int n = scan_byte(text, size, '\t', FL_CRITEO_CELLS, end);

    if (n != FL_CRITEO_CELLS - 1)
        return n + 1;
    end[n] = size;
    for (int i = 0; i < FL_CRITEO_DENSE; i++)
        tile->number[row][i] = fl_load8(text + end[i + 1] - 8);
    for (int i = 0; i < FL_CRITEO_IDS; i++)
        tile->text[i][row] = fl_load8(text + end[FL_CRITEO_DENSE + i] + 1);
    tile->label[row] = *text - '0';
    tile->odd[row] = odd_texts(end + FL_CRITEO_DENSE) << (FL_CRITEO_DENSE + 1) |
                     (end[0] != 1 || (unsigned char)(*text - '0') > 9);
    return FL_CRITEO_CELLS;
}

/* Of a row's integers, which lanes are none of up to seven digits.
 *
 * Multiplied by 1 / range a number may differ in its last bits from the
 * quotient, but the float nearest to it does not: with seven digits no quotient
 * comes that close to the middle between two floats. */
#if FL_ISA == 512

static uint32_t scale_half(const uint64_t *number, const uint32_t *end,
                           const double *low, const double *scale,
                           __mmask8 which, float *out)
{
    const __m512i zeros = _mm512_set1_epi8('0'), eight = _mm512_set1_epi64(8);
    __m256i length = _mm256_sub_epi32(load_half(end + 1), load_half(end));
    __m512i n =
        _mm512_sub_epi64(_mm512_cvtepu32_epi64(length), _mm512_set1_epi64(1));
    __m512i shift = _mm512_slli_epi64(_mm512_sub_epi64(eight, n), 3);
    __m512i keep = _mm512_sllv_epi64(_mm512_set1_epi64(-1), shift);
    __m512i y = _mm512_and_si512(
        _mm512_xor_si512(_mm512_loadu_si512(number), zeros), keep);
    __m512i high = _mm512_or_si512(
        y, _mm512_add_epi8(y, _mm512_set1_epi8((char)(0x80 - 10))));
    __m512i two = _mm512_maddubs_epi16(y, _mm512_set1_epi16(10 | 1 << 8));
    __m512i four = _mm512_madd_epi16(two, _mm512_set1_epi32(100 | 1 << 16));
    __m512i all =
        _mm512_add_epi64(_mm512_mul_epu32(four, _mm512_set1_epi64(10000)),
                         _mm512_srli_epi64(four, 32));
    __m512d lowest = _mm512_loadu_pd(low);
    __m512d x =
        _mm512_mask_cvtepi64_pd(lowest, _mm512_test_epi64_mask(n, n), all);

    x = _mm512_mul_pd(_mm512_sub_pd(x, lowest), _mm512_loadu_pd(scale));
    _mm256_mask_storeu_ps(out, which, _mm512_cvtpd_ps(x));
    return which & (_mm512_test_epi64_mask(high, _mm512_set1_epi8((char)0x80)) |
                    _mm512_cmpge_epu64_mask(n, eight));
}

static uint32_t scale_row(const uint64_t *number, const uint32_t *end,
                          const double *scale, float *out)
{
    return scale_half(number, end, fl_criteo_low, scale, 0xFF, out) |
           scale_half(number + 8, end + 8, fl_criteo_low + 8, scale + 8, 0x1F,
                      out + 8)
               << 8;
}

#else

static uint32_t scale_row(const uint64_t *number, const uint32_t *end,
                          const double *scale, float *out)
{
    uint32_t odd = 0;

    for (int i = 0; i < FL_CRITEO_DENSE; i++) {
        uint32_t n = end[i + 1] - end[i] - 1;
        uint32_t half = n > 7 ? 0 : 4 * (8 - n); /* no shift of 64 */
        uint64_t y = (number[i] ^ FL_BYTES('0')) & (~0ull << half) << half;
        double x = n ? (double)(int32_t)fl_eight_digits(y) : fl_criteo_low[i];

        out[i] = (float)((x - fl_criteo_low[i]) * scale[i]);
        odd |= (uint32_t)(!fl_are_digits(y) | (n > 7)) << i;
    }
    return odd;
}

#endif

static void criteo_dense(fl_criteo_tile *tile, int rows, float *dense)
{
    double scale[FL_CRITEO_LANES];

    for (int i = 0; i < FL_CRITEO_LANES; i++)
        scale[i] = 1.0 / fl_criteo_range[i];
    for (int r = 0; r < rows; r++)
        tile->odd[r] |= (uint64_t)scale_row(tile->number[r], tile->end[r],
                                            scale, dense + r * FL_CRITEO_DENSE)
                        << 1;
}

/* XXH64 as its specification has it, for an input of eight bytes. */
#define PRIME1 0x9E3779B185EBCA87u
#define PRIME2 0xC2B2AE3D27D4EB4Fu
#define PRIME3 0x165667B19E3779F9u
#define PRIME4 0x85EBCA77C2B2AE63u
#define PRIME5 0x27D4EB2F165667C5u

static inline uint64_t rotate(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static void hash_eights(const uint64_t *text, int n, uint64_t seed,
                        uint64_t *hash)
{
    for (int i = 0; i < n; i++) {
        uint64_t h = seed + PRIME5 + 8;

        h ^= rotate(text[i] * PRIME2, 31) * PRIME1;
        h = rotate(h, 27) * PRIME1 + PRIME4;
        h = (h ^ h >> 33) * PRIME2;
        h = (h ^ h >> 29) * PRIME3;
        hash[i] = h ^ h >> 32;
    }
}

extern const fl_kernels TABLE;
const fl_kernels TABLE = {
    .isa = ISA_NAME,
    .scan_byte = scan_byte,
    .scan_tokens = scan_tokens,
    .read_ids = read_ids,
    .read_floats = read_floats,
    .read_single_ids = read_single_ids,
    .criteo_cut = criteo_cut,
    .criteo_dense = criteo_dense,
    .hash_eights = hash_eights,
};
