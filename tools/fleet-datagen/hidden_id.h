/* hidden_id.h - ids that say nothing of their ranks. */
#pragma once

#include <stdint.h>

/* What stands for the id of that rank: 32 bits, one to one in each slot. */
uint32_t hidden_id(uint64_t seed, int slot, int64_t rank);
