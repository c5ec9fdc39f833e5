/* join.h - NCCL's numbers for elements and reductions, and two elements made
 * one.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { U8 = 1, I32 = 2, I64 = 4, F32 = 7, F64 = 8 };
enum { SUM = 0, MAX = 2, MIN = 3 };

static size_t size_of(int type)
{
    return type == U8 ? 1 : type == I64 || type == F64 ? 8 : 4;
}

#define JOIN(T, U, larger)                                                     \
    do {                                                                       \
        T x, y;                                                                \
        memcpy(&x, a, sizeof x);                                               \
        memcpy(&y, b, sizeof y);                                               \
        x = how == SUM ? (T)((U)x + (U)y) : (larger) == (how == MAX) ? x : y;  \
        memcpy(a, &x, sizeof x);                                               \
    } while (0)

static void join(char *a, const char *b, int type, int how)
{
    switch (type) {
    case F32:
        JOIN(float, float, x > y || y != y);
        break;
    case F64:
        JOIN(double, double, x > y || y != y);
        break;
    case I32:
        JOIN(int32_t, uint32_t, x > y);
        break;
    case I64:
        JOIN(int64_t, uint64_t, x > y);
        break;
    default:
        JOIN(uint8_t, uint8_t, x > y);
    }
}
