/* comm_kit_values.c - the numbers of comm_kit.h, and a reference that is slow,
 * obvious and its own. */
#define SUITE comm_kit_values
#include "comm_kit.h"
#include "test.h"

#include <math.h>
#include <string.h>

static const int64_t size_of[FL_N_WIRE] = {
    [FL_WIRE_F32] = 4, [FL_WIRE_F64] = 8, [FL_WIRE_I32] = 4, [FL_WIRE_I64] = 8,
    [FL_WIRE_U8] = 1,  [FL_WIRE_F16] = 2, [FL_WIRE_BF16] = 2};

static uint64_t mix(int rank, int64_t i)
{
    uint64_t z = (uint64_t)i * 0x9E3779B97F4A7C15u +
                 (uint64_t)rank * 0xD1B54A32D192ED03u;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* As ldexp(), which took two thirds of the kit's time; its numbers are all
 * normal ones. */
static double scaled(double x, int e)
{
    uint64_t bits = (uint64_t)(e + 1023) << 52;
    double power;

    memcpy(&power, &bits, sizeof power);
    return x * power;
}

/* Between -8 and 8, of many sizes; now and then what is not finite. */
static double real_of(int rank, int64_t i)
{
    uint64_t x = mix(rank, i);
    double sign = x & 1 ? -1.0 : 1.0;

    if (x % 499 == 7)
        return NAN;
    if (x % 499 == 8)
        return sign * (double)INFINITY;
    return sign *
           scaled(1.0 + (double)(x >> 40) / 0x1p24, 2 - (int)((x >> 8) % 25));
}

/* A number with so many bits of fraction and that least exponent, to nearest
 * even. */
static double rounded(double x, int bits, int least)
{
    int e;

    if (!isfinite(x) || x == 0)
        return x;
    frexp(x, &e);
    e = e - 1 < least ? least : e - 1;
    return scaled(nearbyint(scaled(x, bits - e)), e - bits);
}

static uint16_t pack(double x, int bits, int least, int most)
{
    uint32_t sign = signbit(x) ? 0x8000 : 0, whole = (uint32_t)(most - least);
    int e;
    double r = fabs(rounded(x, bits, least));

    if (isnan(x))
        return (uint16_t)(((whole + 2) << bits) | 1u << (bits - 1));
    if (r >= scaled(1.0, most + 1))
        return (uint16_t)(sign | (whole + 2) << bits);
    if (r < scaled(1.0, least))
        return (uint16_t)(sign | (uint32_t)scaled(r, bits - least));
    frexp(r, &e);
    return (uint16_t)(sign | (uint32_t)(e - 1 - least + 1) << bits |
                      ((uint32_t)scaled(r, bits - e + 1) & ((1u << bits) - 1)));
}

static double unpack(uint16_t x, int bits, int least, int most)
{
    uint32_t e = (x & 0x7FFFu) >> bits, f = x & ((1u << bits) - 1);
    double sign = x & 0x8000 ? -1.0 : 1.0;

    if ((int)e == most - least + 2)
        return f ? NAN : sign * (double)INFINITY;
    if (e == 0)
        return sign * scaled((double)f, least - bits);
    return sign * scaled((double)(f | 1u << bits), (int)e - 1 + least - bits);
}

#define HALF  10, -14, 15
#define BRAIN 7, -126, 127

static void put(void *out, fl_wire_type type, int64_t i, double x)
{
    switch (type) {
    case FL_WIRE_F32:
        ((float *)out)[i] = (float)x;
        break;
    case FL_WIRE_F64:
        ((double *)out)[i] = x;
        break;
    case FL_WIRE_F16:
        ((uint16_t *)out)[i] = pack(x, HALF);
        break;
    default:
        ((uint16_t *)out)[i] = pack(x, BRAIN);
    }
}

static double get(const void *in, fl_wire_type type, int64_t i)
{
    switch (type) {
    case FL_WIRE_F32:
        return (double)((const float *)in)[i];
    case FL_WIRE_F64:
        return ((const double *)in)[i];
    case FL_WIRE_F16:
        return unpack(((const uint16_t *)in)[i], HALF);
    default:
        return unpack(((const uint16_t *)in)[i], BRAIN);
    }
}

static bool is_integer(fl_wire_type type)
{
    return type == FL_WIRE_I32 || type == FL_WIRE_I64 || type == FL_WIRE_U8;
}

static void put_integer(void *out, fl_wire_type type, int64_t i, int64_t x)
{
    if (type == FL_WIRE_I32)
        ((int32_t *)out)[i] = (int32_t)x;
    else if (type == FL_WIRE_I64)
        ((int64_t *)out)[i] = x;
    else
        ((uint8_t *)out)[i] = (uint8_t)x;
}

static int64_t integer_of(fl_wire_type type, int rank, int64_t i)
{
    int64_t x = (int64_t)mix(rank, i);

    if (type == FL_WIRE_I32)
        return (int32_t)x;
    return type == FL_WIRE_U8 ? (uint8_t)x : x;
}

void comm_kit_fill(void *out, fl_wire_type type, int rank, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (is_integer(type))
            put_integer(out, type, i, integer_of(type, rank, i));
        else
            put(out, type, i, real_of(rank, i));
}

/* One step, in the arithmetic in which sums are made: double for f64, else
 * float. */
static double add(double a, double b, fl_wire_type type)
{
    return type == FL_WIRE_F64 ? a + b : (double)((float)a + (float)b);
}

static double want_real(fl_reduce how, fl_wire_type type, int size, int64_t i)
{
    char one[8];
    double all = 0, x;

    for (int r = 0; r < size; r++) {
        put(one, type, 0, real_of(r, i));
        x = get(one, type, 0);
        if (r == 0)
            all = x;
        else if (how == FL_ALL_MAX || how == FL_ALL_MIN)
            all = isnan(all) || isnan(x)             ? NAN
                  : (x > all) == (how == FL_ALL_MAX) ? x
                                                     : all;
        else
            all = add(all, x, type);
    }
    if (how != FL_ALL_MEAN)
        return all;
    return type == FL_WIRE_F64 ? all * (1.0 / size)
                               : (double)((float)all * (1.0f / (float)size));
}

static int64_t want_integer(fl_reduce how, fl_wire_type type, int size,
                            int64_t i)
{
    int64_t all = integer_of(type, 0, i);

    for (int r = 1; r < size; r++) {
        int64_t x = integer_of(type, r, i);

        if (how == FL_ALL_SUM)
            all = (int64_t)((uint64_t)all + (uint64_t)x);
        else if ((how == FL_ALL_MAX) == (x > all))
            all = x;
    }
    return all;
}

void comm_kit_want(void *out, fl_reduce how, fl_wire_type type, int size,
                   int64_t begin, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (is_integer(type))
            put_integer(out, type, i, want_integer(how, type, size, begin + i));
        else
            put(out, type, i, want_real(how, type, size, begin + i));
}

static bool is_near(double got, double want, double tolerance)
{
    double scale = fabs(want) > 1 ? fabs(want) : 1;

    if (isnan(got) || isnan(want))
        return isnan(got) && isnan(want);
    return got == want || fabs(got - want) <= tolerance * scale;
}

void comm_kit_check(const void *got, const void *want, fl_wire_type type,
                    int64_t n, double tolerance)
{
    size_t size = (size_t)size_of[type];

    for (int64_t i = 0; i < n; i++) {
        const char *g = (const char *)got + (size_t)i * size;
        const char *w = (const char *)want + (size_t)i * size;

        if (memcmp(g, w, size) == 0)
            continue;
        if (is_integer(type))
            test_fail(__FILE__, __LINE__, "integer %lld of type %d is another",
                      (long long)i, (int)type);
        if (!(isnan(get(got, type, i)) && isnan(get(want, type, i))) &&
            !(tolerance > 0 &&
              is_near(get(got, type, i), get(want, type, i), tolerance)))
            test_fail(__FILE__, __LINE__, "element %lld is %.17g, not %.17g",
                      (long long)i, get(got, type, i), get(want, type, i));
    }
}
