/* amp.h - mixed precision: what strategy.amp and amp_configs may be. */
#ifndef FL_FLEET_AMP_H
#define FL_FLEET_AMP_H

#include <fleet/strategy.h>

#include "fleet/role.h"

/* What contradicts itself or is not there on a CPU. */
fleet_status fl_amp_check(const fleet_distributed_strategy *s);

/* Can this process compute so? A server computes no products. */
fleet_status fl_amp_check_processor(const fleet_distributed_strategy *s,
                                    const fl_role *role);

#endif
