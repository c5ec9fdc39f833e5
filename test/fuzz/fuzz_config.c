/* fuzz_config.c - any bytes as a configuration of fleet-train. */
#include <stddef.h>
#include <stdint.h>

#include "fleet/config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fl_config c;

    fl_config_read(&c, (const char *)data, size, "fuzz");
    fl_config_done(&c);
    return 0;
}
