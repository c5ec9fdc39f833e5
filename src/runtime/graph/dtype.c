/* dtype.c - element types of base.h. */
#include <fleet/base.h>

typedef struct element {
    const char *name;
    size_t size;
} element;

static const element *element_of(fleet_dtype dtype)
{
    static const element all[] = {{"?", 0},
                                  [FLEET_FLOAT32] = {"float32", 4},
                                  [FLEET_INT64] = {"int64", 8},
                                  [FLEET_INT32] = {"int32", 4},
                                  [FLEET_UINT8] = {"uint8", 1},
                                  [FLEET_BFLOAT16] = {"bfloat16", 2},
                                  [FLEET_FLOAT16] = {"float16", 2},
                                  [FLEET_FLOAT64] = {"float64", 8}};

    return &all[(unsigned)dtype < sizeof all / sizeof *all ? dtype : 0];
}

const char *fleet_dtype_name(fleet_dtype dtype)
{
    return element_of(dtype)->name;
}

size_t fleet_dtype_size(fleet_dtype dtype)
{
    return element_of(dtype)->size;
}
