/* dtype.c - element types of base.h. */
#include <fleet/base.h>

const char *fleet_dtype_name(fleet_dtype dtype)
{
    switch (dtype) {
    case FLEET_FLOAT32:
        return "float32";
    case FLEET_INT64:
        return "int64";
    case FLEET_INT32:
        return "int32";
    case FLEET_UINT8:
        return "uint8";
    case FLEET_BFLOAT16:
        return "bfloat16";
    case FLEET_FLOAT16:
        return "float16";
    }
    return "?";
}

size_t fleet_dtype_size(fleet_dtype dtype)
{
    switch (dtype) {
    case FLEET_FLOAT32:
    case FLEET_INT32:
        return 4;
    case FLEET_INT64:
        return 8;
    case FLEET_BFLOAT16:
    case FLEET_FLOAT16:
        return 2;
    case FLEET_UINT8:
        return 1;
    }
    return 0;
}
