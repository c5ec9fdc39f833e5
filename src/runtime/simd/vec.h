/* vec.h - a vector of FL_VW floats, for the files that are compiled once per
 * instruction set (*_simd.c, see the Makefile).
 *
 * A formula is written once, in these words, and becomes 16, 8 or 1 lanes wide.
 * Loads and stores take the number of lanes that count, so that a tail runs
 * through the same operations as the middle: every element has the same bits
 * wherever a split falls. v_load_row() and v_store_row() are for rows of
 * tables, which lie where they lie in cache lines. All operations round as IEEE
 * says, so formulas without v_fma have the same bits on every instruction set,
 * too.
 */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#ifndef FL_ISA
#define FL_ISA 0 /* for editors and linters */
#endif

#if FL_ISA >= 256

#include <immintrin.h>

/* Up to 4, up to 8 lanes, and not a byte beyond them (of 3, one lane): a masked
 * access that reaches into another cache line waits for that, whatever its mask
 * says. Tables have their rows side by side, each as long as it is. */
static inline __m128 v_load4_(const float *p, int n)
{
    switch (n) {
    case 1:
        return _mm_load_ss(p);
    case 2:
        return _mm_castsi128_ps(_mm_loadu_si64(p));
    case 3:
        return _mm_maskload_ps(p, _mm_setr_epi32(-1, -1, -1, 0));
    default:
        return _mm_loadu_ps(p);
    }
}
static inline void v_store4_(float *p, __m128 x, int n)
{
    switch (n) {
    case 1:
        _mm_store_ss(p, x);
        break;
    case 2:
        _mm_storeu_si64(p, _mm_castps_si128(x));
        break;
    case 3:
        _mm_maskstore_ps(p, _mm_setr_epi32(-1, -1, -1, 0), x);
        break;
    default:
        _mm_storeu_ps(p, x);
    }
}
static inline __m256 v_load8_(const float *p, int n)
{
    if (n == 8)
        return _mm256_loadu_ps(p);
    if (n <= 4)
        return _mm256_zextps128_ps256(v_load4_(p, n));
    return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(p)),
                                v_load4_(p + 4, n - 4), 1);
}
static inline void v_store8_(float *p, __m256 x, int n)
{
    if (n == 8) {
        _mm256_storeu_ps(p, x);
        return;
    }
    v_store4_(p, _mm256_castps256_ps128(x), n < 4 ? n : 4);
    if (n > 4)
        v_store4_(p + 4, _mm256_extractf128_ps(x, 1), n - 4);
}

#endif

#if FL_ISA == 512

enum { FL_VW = 16 };
#define FL_SIMD(name) name##_avx512
#define V_(name)      _mm512_##name
typedef __m512 vf;

static inline __mmask16 v_lanes_(int n)
{
    return (__mmask16)((1u << n) - 1);
}
static inline vf v_load(const float *p, int n)
{
    return n == FL_VW ? _mm512_loadu_ps(p)
                      : _mm512_maskz_loadu_ps(v_lanes_(n), p);
}
static inline void v_store(float *p, vf x, int n)
{
    if (n == FL_VW)
        _mm512_storeu_ps(p, x);
    else
        _mm512_mask_storeu_ps(p, v_lanes_(n), x);
}
static inline vf v_load_row(const float *p, int n)
{
    if (n == FL_VW)
        return _mm512_loadu_ps(p);
    if (n <= 8)
        return _mm512_zextps256_ps512(v_load8_(p, n));
    return _mm512_castpd_ps(_mm512_insertf64x4(
        _mm512_castps_pd(_mm512_castps256_ps512(_mm256_loadu_ps(p))),
        _mm256_castps_pd(v_load8_(p + 8, n - 8)), 1));
}
static inline void v_store_row(float *p, vf x, int n)
{
    if (n == FL_VW) {
        _mm512_storeu_ps(p, x);
        return;
    }
    v_store8_(p, _mm512_castps512_ps256(x), n < 8 ? n : 8);
    if (n > 8)
        v_store8_(
            p + 8,
            _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(x), 1)),
            n - 8);
}
static inline vf v_first_lanes(vf a, int n) /* the rest 0 */
{
    return _mm512_maskz_mov_ps(v_lanes_(n), a);
}
static inline vf v_if_positive(vf test, vf a) /* a where test > 0, else 0 */
{
    return _mm512_maskz_mov_ps(
        _mm512_cmp_ps_mask(test, _mm512_setzero_ps(), _CMP_GT_OQ), a);
}
static inline vf v_where_positive(vf test, vf a, vf b) /* a, else b */
{
    return _mm512_mask_mov_ps(
        b, _mm512_cmp_ps_mask(test, _mm512_setzero_ps(), _CMP_GT_OQ), a);
}
static inline vf v_round(vf a) /* to the nearest integer */
{
    return _mm512_roundscale_ps(a,
                                _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vf v_scale2(vf a, vf n) /* a 2^n, n an integer in [-126, 127] */
{
    __m512i bits =
        _mm512_add_epi32(_mm512_cvtps_epi32(n), _mm512_set1_epi32(127));

    return _mm512_mul_ps(a, _mm512_castsi512_ps(_mm512_slli_epi32(bits, 23)));
}
/* Of finite a > 0: the exponent, and a over 2^exponent, in [1, 2). */
static inline vf v_exponent(vf a)
{
    return _mm512_getexp_ps(a);
}
static inline vf v_mantissa(vf a)
{
    return _mm512_getmant_ps(a, _MM_MANT_NORM_1_2, _MM_MANT_SIGN_zero);
}
static inline vf v_keep_nan(vf test, vf a) /* test where it is NaN, else a */
{
    return _mm512_mask_mov_ps(a, _mm512_cmp_ps_mask(test, test, _CMP_UNORD_Q),
                              test);
}
static inline float v_sum(vf a)
{
    return _mm512_reduce_add_ps(a);
}
/* bfloat16 is the upper half of a float; stores round to nearest even, and a
 * NaN stays one. */
static inline vf v_load_bf16(const uint16_t *p, int n)
{
    __m256i half = n == FL_VW
                       ? _mm256_loadu_si256((const __m256i *)(const void *)p)
                       : _mm256_maskz_loadu_epi16(v_lanes_(n), p);

    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
static inline void v_store_bf16(uint16_t *p, vf x, int n)
{
    __m512i bits = _mm512_castps_si512(x), top = _mm512_srli_epi32(bits, 16);
    __m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
    __m512i up = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    __m512i near = _mm512_srli_epi32(_mm512_add_epi32(bits, up), 16);
    __m512i nan = _mm512_or_si512(top, _mm512_set1_epi32(0x40));
    __m256i half = _mm512_cvtepi32_epi16(_mm512_mask_mov_epi32(
        near, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), nan));

    _mm256_mask_storeu_epi16(p, v_lanes_(n), half);
}

#elif FL_ISA == 256

enum { FL_VW = 8 };
#define FL_SIMD(name) name##_avx2
#define V_(name)      _mm256_##name
typedef __m256 vf;

static inline __m256i v_lanes_(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
static inline vf v_load(const float *p, int n)
{
    return n == FL_VW ? _mm256_loadu_ps(p) : _mm256_maskload_ps(p, v_lanes_(n));
}
static inline void v_store(float *p, vf x, int n)
{
    if (n == FL_VW)
        _mm256_storeu_ps(p, x);
    else
        _mm256_maskstore_ps(p, v_lanes_(n), x);
}
static inline vf v_load_row(const float *p, int n)
{
    return v_load8_(p, n);
}
static inline void v_store_row(float *p, vf x, int n)
{
    v_store8_(p, x, n);
}
static inline vf v_first_lanes(vf a, int n)
{
    return _mm256_and_ps(_mm256_castsi256_ps(v_lanes_(n)), a);
}
static inline vf v_if_positive(vf test, vf a)
{
    return _mm256_and_ps(_mm256_cmp_ps(test, _mm256_setzero_ps(), _CMP_GT_OQ),
                         a);
}
static inline vf v_where_positive(vf test, vf a, vf b)
{
    return _mm256_blendv_ps(
        b, a, _mm256_cmp_ps(test, _mm256_setzero_ps(), _CMP_GT_OQ));
}
static inline vf v_round(vf a)
{
    return _mm256_round_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
static inline vf v_scale2(vf a, vf n)
{
    __m256i bits =
        _mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127));

    return _mm256_mul_ps(a, _mm256_castsi256_ps(_mm256_slli_epi32(bits, 23)));
}
/* A denormal has no leading 1: it is made 2^23 times as large. */
static inline vf v_denormal_(vf a)
{
    return _mm256_cmp_ps(a, _mm256_set1_ps(1.17549435e-38f), _CMP_LT_OQ);
}
static inline __m256i v_normal_bits_(vf a)
{
    return _mm256_castps_si256(_mm256_blendv_ps(
        a, _mm256_mul_ps(a, _mm256_set1_ps(8388608.0f)), v_denormal_(a)));
}
static inline vf v_exponent(vf a)
{
    __m256i e = _mm256_sub_epi32(_mm256_srli_epi32(v_normal_bits_(a), 23),
                                 _mm256_set1_epi32(127));

    return _mm256_sub_ps(_mm256_cvtepi32_ps(e),
                         _mm256_and_ps(v_denormal_(a), _mm256_set1_ps(23.0f)));
}
static inline vf v_mantissa(vf a)
{
    return _mm256_castsi256_ps(_mm256_or_si256(
        _mm256_and_si256(v_normal_bits_(a), _mm256_set1_epi32(0x7fffff)),
        _mm256_set1_epi32(0x3f800000)));
}
static inline vf v_keep_nan(vf test, vf a)
{
    return _mm256_blendv_ps(a, test, _mm256_cmp_ps(test, test, _CMP_UNORD_Q));
}
static inline float v_sum(vf a)
{
    __m128 x =
        _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));

    x = _mm_add_ps(x, _mm_movehl_ps(x, x));
    return _mm_cvtss_f32(_mm_add_ss(x, _mm_shuffle_ps(x, x, 1)));
}
static inline vf v_load_bf16(const uint16_t *p, int n)
{
    uint16_t part[8] = {0};

    if (n < FL_VW) {
        memcpy(part, p, (size_t)n * sizeof *p);
        p = part;
    }
    return _mm256_castsi256_ps(
        _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(
                              (const __m128i *)(const void *)p)),
                          16));
}
static inline void v_store_bf16(uint16_t *p, vf x, int n)
{
    uint16_t part[8];
    __m256i bits = _mm256_castps_si256(x), top = _mm256_srli_epi32(bits, 16);
    __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    __m256i near = _mm256_srli_epi32(_mm256_add_epi32(bits, up), 16);
    __m256i nan = _mm256_or_si256(top, _mm256_set1_epi32(0x40));
    __m256i half = _mm256_blendv_epi8(
        near, nan, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));

    _mm_storeu_si128((__m128i *)(void *)part,
                     _mm_packus_epi32(_mm256_castsi256_si128(half),
                                      _mm256_extracti128_si256(half, 1)));
    memcpy(p, part, (size_t)n * sizeof *p);
}

#else

enum { FL_VW = 1 };
#define FL_SIMD(name) name##_plain
typedef float vf;

static inline vf v_load(const float *p, int n)
{
    (void)n;
    return *p;
}
static inline void v_store(float *p, vf x, int n)
{
    (void)n;
    *p = x;
}
static inline vf v_load_row(const float *p, int n)
{
    return v_load(p, n);
}
static inline void v_store_row(float *p, vf x, int n)
{
    v_store(p, x, n);
}
#define FL_WORD       static inline
#include "runtime/simd/one_lane.h"
static inline vf v_fma(vf a, vf b, vf c)
{
    return fmaf(a, b, c);
}
static inline vf v_first_lanes(vf a, int n)
{
    (void)n;
    return a;
}
static inline vf v_round(vf a)
{
    return nearbyintf(a);
}
static inline vf v_scale2(vf a, vf n)
{
    return ldexpf(a, (int)n);
}
static inline vf v_exponent(vf a)
{
    int e;

    frexpf(a, &e);
    return (float)(e - 1);
}
static inline vf v_mantissa(vf a)
{
    int e;

    return 2.0f * frexpf(a, &e);
}
static inline float v_sum(vf a)
{
    return a;
}
static inline vf v_load_bf16(const uint16_t *p, int n)
{
    uint32_t bits = (uint32_t)*p << 16;
    vf x;

    (void)n;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static inline void v_store_bf16(uint16_t *p, vf x, int n)
{
    uint32_t bits;

    (void)n;
    memcpy(&bits, &x, sizeof bits);
    *p = (uint16_t)(x != x ? bits >> 16 | 0x40
                           : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#endif

#if FL_ISA >= 256 /* what the two have in common */

static inline vf v_set(float x)
{
    return V_(set1_ps)(x);
}
static inline vf v_add(vf a, vf b)
{
    return V_(add_ps)(a, b);
}
static inline vf v_sub(vf a, vf b)
{
    return V_(sub_ps)(a, b);
}
static inline vf v_mul(vf a, vf b)
{
    return V_(mul_ps)(a, b);
}
static inline vf v_div(vf a, vf b)
{
    return V_(div_ps)(a, b);
}
static inline vf v_sqrt(vf a)
{
    return V_(sqrt_ps)(a);
}
static inline vf v_fma(vf a, vf b, vf c) /* a b + c, rounded once */
{
    return V_(fmadd_ps)(a, b, c);
}
static inline vf v_min(vf a, vf b) /* b where either is NaN */
{
    return V_(min_ps)(a, b);
}
static inline vf v_max(vf a, vf b)
{
    return V_(max_ps)(a, b);
}

#endif

/* for (int i = 0; i < n; i += FL_VW) with k lanes that count */
#define FL_FOR_VEC(i, k, n)                                                    \
    for (int64_t i = 0, k; i < (n) && (k = (n)-i < FL_VW ? (n)-i : FL_VW, 1);  \
         i += FL_VW)

/* Ask for the cache lines of n floats. */
static inline void v_prefetch(const float *p, int64_t n)
{
    const char *line = (const char *)p - (uintptr_t)p % 64;

    for (; line < (const char *)(p + n); line += 64)
        __builtin_prefetch(line);
}
