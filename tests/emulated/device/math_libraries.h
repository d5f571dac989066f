// What is needed of cuBLAS, cuBLASLt and cuDNN 9: the numbers and the one record that callers see. Declared
// here, so that their packages (800 MB) need not be had for their headers. Handles and descriptors are
// opaque to callers.
#pragma once
#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <library_types.h>

using Status = int;  // 0: success
constexpr Status CUDNN_NOT_SUPPORTED = 3000;

// cuBLASLt
constexpr int LT_DESC_TRANSA = 3, LT_LAYOUT_BATCH_COUNT = 5;
struct LtHeuristicResult {
  uint64_t algo[8];
  size_t workspace_size;
  Status state;
  float waves_count;
  int reserved[4];
};
static_assert(sizeof(LtHeuristicResult) == 96, "what callers allocate");

// cuDNN's backend: the types of attributes, and the attributes that mean something here
enum AttributeType {
  TYPE_HANDLE = 0,
  TYPE_BOOLEAN = 2,
  TYPE_INT64 = 3,
  TYPE_DOUBLE = 5,
  TYPE_VOID_PTR = 6,
  TYPE_DESCRIPTOR = 15,
  TYPE_CHAR = 24,
  TYPE_FRACTION = 26
};
constexpr int ENGINE_DESCRIPTOR = 2;
enum Attribute {
  HEURISTIC_GRAPH = 201,
  HEURISTIC_RESULTS = 202,
  CONFIG_ENGINE = 300,
  CONFIG_KNOBS = 302,
  CONFIG_WORKSPACE = 303,
  PLAN_CONFIG = 401,
  PLAN_WORKSPACE = 402,
  FORWARD_W = 703,
  FORWARD_Y = 705,
  BACKWARD_DATA_W = 709,
  BACKWARD_DATA_DY = 711,
  BACKWARD_FILTER_DW = 715,
  BACKWARD_FILTER_DY = 717,
  GRAPH_OPS = 801,
  GRAPH_ENGINES = 802,
  TENSOR_DIMENSIONS = 902,
  ENGINE_GRAPH = 1300,
  ENGINE_INDEX = 1301,
  ENGINE_KNOBS = 1302,
  ENGINE_NUMERICS = 1303,
  ENGINE_BEHAVIOUR = 1305
};
