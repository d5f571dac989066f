// The runtime API: streams, events, captures and graphs.
#include "runtime_api.h"
#include <cstring>
using namespace emu;

EXPORT cudaError_t cudaStreamCreate(cudaStream_t* s) {
  *s = reinterpret_cast<cudaStream_t>(new_stream(0, 0));
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned f) {
  *s = reinterpret_cast<cudaStream_t>(new_stream(f, 0));
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamCreateWithPriority(cudaStream_t* s, unsigned f, int p) {
  *s = reinterpret_cast<cudaStream_t>(new_stream(f, p));
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamDestroy(cudaStream_t s) {
  drop_stream(S(s));
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamGetPriority(cudaStream_t s, int* p) {
  *p = S(s)->priority;
  return cudaSuccess;
}
static cudaError_t broken(Stream* s) {
  s->capture->broken = true;
  return fail(cudaErrorStreamCaptureUnsupported);
}
EXPORT cudaError_t cudaStreamQuery(cudaStream_t h) {
  Api api(CB(cudaStreamQuery_v3020));
  Stream* s = S(h);
  if (s->capture) return broken(s);
  if (forbidden()) return fail(cudaErrorStreamCaptureUnsupported);
  spin(200);
  return over(tail_of(s)) && effects_done() ? cudaSuccess : fail(cudaErrorNotReady);
}
EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t h) {
  Api api(CB(cudaStreamSynchronize_v3020));
  Stream* s = S(h);
  if (s->capture) return broken(s);
  if (forbidden()) return fail(cudaErrorStreamCaptureUnsupported);
  spin(config().sync);
  Ns t0 = now();
  wait_until(tail_of(s));
  if (profiling) profile_sync(3, s, nullptr, t0, now());
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t e, unsigned) {
  Api api(CB(cudaStreamWaitEvent_v3020));
  spin(500);
  Ns t = now();
  if (!wait_event(S(s), reinterpret_cast<Event*>(e))) return fail(cudaErrorStreamCaptureImplicit);
  if (profiling) profile_sync(2, S(s), reinterpret_cast<Event*>(e), t, now());
  return cudaSuccess;
}
EXPORT cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned f) {
  auto* x = new Event;
  x->flags = f;
  x->id = next_id();
  *e = reinterpret_cast<cudaEvent_t>(x);
  return cudaSuccess;
}
EXPORT cudaError_t cudaEventCreate(cudaEvent_t* e) { return cudaEventCreateWithFlags(e, 0); }
EXPORT cudaError_t cudaEventDestroy(cudaEvent_t e) {
  delete reinterpret_cast<Event*>(e);
  return cudaSuccess;
}
EXPORT cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t s, unsigned) {
  Api api(CB(cudaEventRecord_v3020));
  // Stricter than CUDA, which forbids it on the legacy stream alone: nothing of the agent's is on any stream then.
  if (!S(s)->capture && forbidden()) return fail(cudaErrorStreamCaptureUnsupported);
  spin(700);
  record(reinterpret_cast<Event*>(e), S(s));
  return cudaSuccess;
}
EXPORT cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
  return cudaEventRecordWithFlags(e, s, 0);
}
// An event of a capture that has ended counts as done. (Why torch asks for such a one at times is not
// understood.)
static bool capturing(Event* e) {
  std::lock_guard<std::mutex> g(lock());
  if (e->capture && !live(e)) {
    e->capture = nullptr;
    e->at = 0;
  }
  return e->capture;
}
EXPORT cudaError_t cudaEventQuery(cudaEvent_t h) {
  Api api(CB(cudaEventQuery_v3020));
  auto* e = reinterpret_cast<Event*>(h);
  if (forbidden()) return fail(cudaErrorStreamCaptureUnsupported);
  spin(200);
  if (!e->recorded) return cudaSuccess;
  if (capturing(e)) return fail(cudaErrorStreamCaptureUnsupported);
  return over(e->at) && effects_done() ? cudaSuccess : fail(cudaErrorNotReady);
}
EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t h) {
  Api api(CB(cudaEventSynchronize_v3020));
  auto* e = reinterpret_cast<Event*>(h);
  if (capturing(e) || forbidden()) return fail(cudaErrorStreamCaptureUnsupported);
  spin(config().sync);
  Ns t0 = now();
  if (e->recorded) wait_until(e->at);
  if (profiling) profile_sync(1, e->stream, e, t0, now());
  return cudaSuccess;
}
EXPORT cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
  auto *x = reinterpret_cast<Event*>(a), *y = reinterpret_cast<Event*>(b);
  if (!x->recorded || !y->recorded || (x->flags & 2) || (y->flags & 2))
    return fail(cudaErrorInvalidResourceHandle);
  Time from = x->at, to = y->at;
  if (!settle(from) || !settle(to) || !over(later(from, to))) return fail(cudaErrorNotReady);
  *ms = float(double(int64_t(to.known - from.known)) / 1e6);
  return cudaSuccess;
}
EXPORT cudaError_t cudaLaunchHostFunc(cudaStream_t h, cudaHostFn_t f, void* p) {
  Api api(CB(cudaLaunchHostFunc_v10000));
  Stream* s = S(h);
  Op op;
  op.kind = Kind::empty;
  op.ns = 1000;
  if (s->capture) {
    op.replay = [=] { f(p); };
    enqueue(s, std::move(op));
    return cudaSuccess;
  }
  run_at(enqueue(s, std::move(op)), [=] { f(p); });
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamAddCallback(cudaStream_t h, cudaStreamCallback_t f, void* p, unsigned) {
  Stream* s = S(h);
  if (s->capture) return broken(s);
  Op op;
  op.kind = Kind::empty;
  op.ns = 1000;
  run_at(enqueue(s, std::move(op)), [=] { f(h, cudaSuccess, p); });
  return cudaSuccess;
}

// Graphs
EXPORT cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t h, cudaGraph_t g, const cudaGraphNode_t*,
                                                 const cudaGraphEdgeData*, size_t,
                                                 cudaStreamCaptureMode mode) {
  Stream* s = S(h);
  if (s->capture) return fail(cudaErrorIllegalState);
  if (uintptr_t(h) <= 2) return fail(cudaErrorStreamCaptureUnsupported);
  s->capture = new Capture{reinterpret_cast<Graph*>(g), int(mode), next_id(), false};
  s->origin = true;
  s->deps.clear();
  begun(s->capture);
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamBeginCapture(cudaStream_t h, cudaStreamCaptureMode mode) {
  Api api(CB(cudaStreamBeginCapture_v10000));
  auto* g = new Graph;
  g->id = next_id();
  return cudaStreamBeginCaptureToGraph(h, reinterpret_cast<cudaGraph_t>(g), nullptr, nullptr, 0, mode);
}
EXPORT cudaError_t cudaStreamEndCapture(cudaStream_t h, cudaGraph_t* g) {
  Api api(CB(cudaStreamEndCapture_v10000));
  Stream* s = S(h);
  Capture* c = s->capture;
  if (!c) return fail(cudaErrorIllegalState);
  bool bad = c->broken;
  *g = bad ? nullptr : reinterpret_cast<cudaGraph_t>(c->graph);
  end_captures(c);
  s->capture = nullptr;
  s->origin = false;
  s->deps.clear();
  return bad ? fail(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
}
EXPORT cudaError_t cudaStreamIsCapturing(cudaStream_t h, cudaStreamCaptureStatus* st) {
  Stream* s = S(h);
  *st = !s->capture          ? cudaStreamCaptureStatusNone
        : s->capture->broken ? cudaStreamCaptureStatusInvalidated
                             : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamGetCaptureInfo(cudaStream_t h, cudaStreamCaptureStatus* st,
                                            unsigned long long* id, cudaGraph_t* g,
                                            const cudaGraphNode_t** deps, const cudaGraphEdgeData** edges,
                                            size_t* n) {
  Stream* s = S(h);
  cudaStreamIsCapturing(h, st);
  if (edges) *edges = nullptr;
  if (!s->capture) return cudaSuccess;
  if (id) *id = s->capture->id;
  if (g) *g = reinterpret_cast<cudaGraph_t>(s->capture->graph);
  if (deps) *deps = reinterpret_cast<const cudaGraphNode_t*>(s->deps.data());
  if (n) *n = s->deps.size();
  return cudaSuccess;
}
EXPORT cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t h, cudaGraphNode_t* d,
                                                       const cudaGraphEdgeData*, size_t n, unsigned flags) {
  Stream* s = S(h);
  if (!s->capture) return fail(cudaErrorIllegalState);
  if (flags == 1) s->deps.clear();
  for (size_t i = 0; i < n; i++) s->deps.push_back(reinterpret_cast<Node*>(d[i]));
  return cudaSuccess;
}
EXPORT cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* m) {
  std::swap(*m, capture_mode);
  return cudaSuccess;
}
EXPORT cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* out, cudaGraph_t h, unsigned long long) {
  Api api(CB(cudaGraphInstantiateWithFlags_v11040));
  auto* g = reinterpret_cast<Graph*>(h);
  auto* e = new GraphExec;
  e->id = g->id;
  const Ns gap = 800;
  for (auto& n : g->nodes) {
    auto c = std::make_shared<Node>(*n);
    for (Node* d : n->deps) c->rel_start = std::max(c->rel_start, d->rel_end + gap);
    c->rel_end = n->rel_end = c->rel_start + c->op.ns;
    e->length = std::max(e->length, c->rel_end);
    e->nodes.push_back(c);
  }
  spin(2000 * g->nodes.size());
  *out = reinterpret_cast<cudaGraphExec_t>(e);
  return cudaSuccess;
}
EXPORT cudaError_t cudaGraphLaunch(cudaGraphExec_t h, cudaStream_t s) {
  Api api(CB(cudaGraphLaunch_v10000));
  auto* e = reinterpret_cast<GraphExec*>(h);
  spin(4000 + 30 * e->nodes.size());
  enqueue_graph(S(s), e);
  return cudaSuccess;
}
EXPORT cudaError_t cudaGraphDestroy(cudaGraph_t g) {
  delete reinterpret_cast<Graph*>(g);
  return cudaSuccess;
}
EXPORT cudaError_t cudaGraphExecDestroy(cudaGraphExec_t g) {
  delete reinterpret_cast<GraphExec*>(g);
  return cudaSuccess;
}
EXPORT cudaError_t cudaGraphGetNodes(cudaGraph_t h, cudaGraphNode_t* out, size_t* n) {
  auto* g = reinterpret_cast<Graph*>(h);
  if (out)
    for (size_t i = 0; i < *n && i < g->nodes.size(); i++)
      out[i] = reinterpret_cast<cudaGraphNode_t>(g->nodes[i].get());
  *n = g->nodes.size();
  return cudaSuccess;
}
EXPORT cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t h, cudaGraphNode_t* out, cudaGraphEdgeData*,
                                                size_t* n) {
  auto* x = reinterpret_cast<Node*>(h);
  if (out)
    for (size_t i = 0; i < *n && i < x->deps.size(); i++)
      out[i] = reinterpret_cast<cudaGraphNode_t>(x->deps[i]);
  *n = x->deps.size();
  return cudaSuccess;
}
EXPORT cudaError_t cudaGraphDebugDotPrint(cudaGraph_t, const char*, unsigned) { return cudaSuccess; }
EXPORT cudaError_t cudaGraphAddNode(cudaGraphNode_t*, cudaGraph_t, const cudaGraphNode_t*,
                                    const cudaGraphEdgeData*, size_t, cudaGraphNodeParams*) {
  return fail(cudaErrorNotSupported);
}
EXPORT cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle*, cudaGraph_t, unsigned,
                                                    unsigned) {
  return fail(cudaErrorNotSupported);
}
EXPORT cudaError_t cudaLibraryLoadData(cudaLibrary_t*, const void*, cudaJitOption*, void**, unsigned,
                                       cudaLibraryOption*, void**, unsigned) {
  return fail(cudaErrorNotSupported);
}
EXPORT cudaError_t cudaLibraryGetKernel(cudaKernel_t*, cudaLibrary_t, const char*) {
  return fail(cudaErrorNotSupported);
}
EXPORT cudaError_t cudaLibraryUnload(cudaLibrary_t) { return cudaSuccess; }
