/* wire_type.c - sizes and names of elements, checks of calls' arguments. */
#include "collective/wire_type.h"

#include <inttypes.h>

static const struct {
    const char *name;
    int64_t size;
} element[FL_N_WIRE] = {
    [FL_WIRE_F32] = {"f32", 4},   [FL_WIRE_F64] = {"f64", 8},
    [FL_WIRE_I32] = {"i32", 4},   [FL_WIRE_I64] = {"i64", 8},
    [FL_WIRE_U8] = {"u8", 1},     [FL_WIRE_F16] = {"f16", 2},
    [FL_WIRE_BF16] = {"bf16", 2},
};

static const char *const reduction[FL_N_REDUCE] = {"sum", "mean", "max", "min"};

int64_t fl_wire_size(fl_wire_type type)
{
    return element[type].size;
}

const char *fl_wire_name(fl_wire_type type)
{
    return type < FL_N_WIRE ? element[type].name : "?";
}

const char *fl_reduce_name(fl_reduce how)
{
    return how < FL_N_REDUCE ? reduction[how] : "?";
}

fleet_status fl_check_reduce(const char *call, fl_reduce how, fl_wire_type type,
                             int64_t n)
{
    if (how >= FL_N_REDUCE || type >= FL_N_WIRE)
        return fl_fail(FLEET_EINVAL, "%s: no reduction %d of element type %d",
                       call, (int)how, (int)type);
    if (n < 0 || n > INT64_MAX / FL_MOST_ELEMENT)
        return fl_fail(FLEET_EINVAL, "%s: %" PRId64 " elements", call, n);
    if (how == FL_ALL_MEAN && type >= FL_WIRE_I32 && type <= FL_WIRE_U8)
        return fl_fail(FLEET_EINVAL, "%s: the mean of %s is not defined", call,
                       fl_wire_name(type));
    return FLEET_OK;
}

fleet_status fl_check_bytes(const char *call, int64_t bytes)
{
    if (bytes < 0)
        return fl_fail(FLEET_EINVAL, "%s: %" PRId64 " bytes", call, bytes);
    return FLEET_OK;
}

fleet_status fl_check_rank(const char *call, const char *what, int rank,
                           int size)
{
    if (rank < 0 || rank >= size)
        return fl_fail(FLEET_EINVAL, "%s: the %s is rank %d of %d", call, what,
                       rank, size);
    return FLEET_OK;
}

fleet_status fl_check_counts(const int64_t *to, const int64_t *from, int size)
{
    for (int r = 0; r < size; r++) {
        FL_TRY(fl_check_bytes("all_to_all_v", to[r]));
        FL_TRY(fl_check_bytes("all_to_all_v", from[r]));
    }
    return FLEET_OK;
}
