/* onnx.h - a trained model as a file of ONNX, for what runs such files:
 * onnxruntime, Triton, Netron. docs/onnx.md is the guide: which operators, how
 * ids come in, what is refused.
 *
 * Threads: any, also while other threads run the predictor, who wait while its
 * rows are copied.
 */
#ifndef FLEET_ONNX_H
#define FLEET_ONNX_H

#include <fleet/io.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All-zero fields are defaults. */
typedef struct fleet_onnx_options {
    int external_data; /* nonzero: tensors of 1,024 bytes and more go into a
                          second file beside it, of its name and ".data"; a
                          file of ONNX alone has at most 2 GB. Both are whole
                          before either takes its place, but they do so one
                          after the other, the second file first: export into
                          a new folder what others read meanwhile */
} fleet_onnx_options;

/* fleet_export_onnx - what the predictor computes, in ONNX's operators (opset
 * 20, ai.onnx.ml 4), with its weights and rows: from its inputs, in the order
 * of fleet_predictor_input(), to its outputs, of their names, shapes and types.
 * -1 is "batch", any number. A ragged input NAME is two: its values of all
 * samples, [N], and NAME.offsets, [batch + 1] int64, as fleet_feed has them.
 *
 * The file's results are those of fleet_predictor_run() but for rounding. Ids
 * without a row read as the model says (fleet_predictor_set_fresh(), before).
 * Initial values that are drawn for each id cannot be said in ONNX: such a
 * table goes out whole if it has a number of `rows`, and is refused else.
 *
 * The file is there, or takes the place of an older one, once it is whole; "-"
 * is standard output, which has no second file. The rows' weights are copied
 * once in memory. options may be NULL.
 *
 *   FLEET_EUNSUPPORTED  an operator, or a table, that has no form in ONNX; more
 *                       than 2 GB without external_data; a libfleet that was
 *                       built without protobuf-c: each is named
 *   FLEET_EEXIST        a variable has the name of another one's offsets
 *   FLEET_EINVAL        an output that is there twice; no predictor, no path;
 *                       external_data of "-"
 *   FLEET_EIO           cannot be written: the path and the reason are named;
 *                       an older file stays
 *   FLEET_ENOMEM
 */
FLEET_API fleet_status fleet_export_onnx(fleet_predictor *predictor,
                                         const char *path,
                                         const fleet_onnx_options *options);

#ifdef __cplusplus
}
#endif

#endif
