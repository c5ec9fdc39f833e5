/* onnx_kit.h - models exported to ONNX, which test/fleet/onnx_ref.py checks
 * with `onnx` and runs by `onnxruntime`: what a predictor says of the same
 * batches is what must come out. All models of a test are asked for at once. */
#pragma once

#include <stdio.h>

#include <fleet/fleet.h>

/* A folder of the test's with a model, and what is fed to it. */
typedef struct onnx_model {
    char folder[200];
    FILE *index;
    fleet_predictor *p;
    int n_file;
} onnx_model;

/* Skip the test, with the reason, in a build without protobuf-c. */
void onnx_need_writer(void);

/* Export it; `title` stands in what differs. options may be NULL. */
void onnx_open(onnx_model *m, const char *title, fleet_predictor *p,
               const fleet_onnx_options *options);

/* A batch, and what the predictor says of it; tolerance 0: 1e-5, relative to
 * the larger of 1 and the number. */
void onnx_batch(onnx_model *m, const fleet_feed *feed, int n, double tolerance);

/* A batch at which onnxruntime must fail, as the predictor does. */
void onnx_bad_batch(onnx_model *m, const fleet_feed *feed, int n);

void onnx_close(onnx_model *m); /* not the predictor */

/* Run them all; skips the test, with the reason, without these packages. */
void onnx_ask(void);

/* Save an inference model of these, and load it: ids without a row read as
 * zeros. */
fleet_predictor *onnx_predictor(fleet *f, fleet_var *const *feed, int n_feed,
                                fleet_var *const *fetch, int n_fetch);
