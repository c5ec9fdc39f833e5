/* fleet.h - all of libfleet. */
#ifndef FLEET_FLEET_H
#define FLEET_FLEET_H

#include <fleet/applications.h>
#include <fleet/base.h>
#include <fleet/conv.h>
#include <fleet/custom_op.h>
#include <fleet/dataset.h>
#include <fleet/executor.h>
#include <fleet/feed.h>
#include <fleet/init.h>
#include <fleet/interactions.h>
#include <fleet/io.h>
#include <fleet/metrics.h>
#include <fleet/nn.h>
#include <fleet/onnx.h>
#include <fleet/ops.h>
#include <fleet/optimizer.h>
#include <fleet/predict.h>
#include <fleet/program.h>
#include <fleet/psgpu.h>
#include <fleet/replay.h>
#include <fleet/report.h>
#include <fleet/schedule.h>
#include <fleet/sequence.h>
#include <fleet/strategy.h>
#include <fleet/table.h>
#include <fleet/train.h>

#endif
