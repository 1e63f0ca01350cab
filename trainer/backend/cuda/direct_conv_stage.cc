#include "trainer/backend/cuda/stage.h"

namespace lenet::cuda {
namespace {

class DirectConvStage : public Stage {
 public:
  DirectConvStage(NetworkContext* context, const Layer& layer, Activation activation, bool pooled, const Tensor& in,
                  const Tensor& out)
      : context_(context),
        shape_(ConvShapeOf(layer, context->batch)),
        layer_(layer),
        activation_(activation),
        pooled_(pooled),
        in_(in),
        out_(out),
        forward_plan_(PlanForward(shape_, pooled)),
        data_plan_(PlanDataGradient(shape_)),
        filter_plan_(PlanFilterGradient(shape_)) {}

  absl::Status Init() {
    if (!context_->training) return absl::OkStatus();
    const Place& place = context_->rank->place;
    const int64_t weights = shape_.weights();
    const int64_t row = weights + shape_.out_channels;
    LENET_RETURN_IF_ERROR(partials_.Allocate(place, row * filter_plan_.blocks));
    if (pooled_) LENET_RETURN_IF_ERROR(winner_.Allocate(place, out_.shape.size() * shape_.batch));
    const Reduction sum = {.partials = partials_.get(), .stride = row, .rows = filter_plan_.blocks};
    Reduction of_weights = sum;
    of_weights.out = context_->gradient(layer_.weight);
    of_weights.size = static_cast<int>(weights);
    Reduction of_bias = sum;
    of_bias.partials += weights;
    of_bias.out = context_->gradient(layer_.bias);
    of_bias.size = shape_.out_channels;
    context_->reductions.push_back(of_weights);
    context_->reductions.push_back(of_bias);
    return absl::OkStatus();
  }

  absl::Status Forward() override {
    const RankContext& rank = *context_->rank;
    LENET_CUDA_RETURN_IF_ERROR(
        rank.place, LaunchConvForward(shape_, forward_plan_, in_.value, context_->parameter(layer_.weight),
                                      context_->parameter(layer_.bias), activation_, pooled_, out_.value, winner_.get(),
                                      rank.main.get()));
    return absl::OkStatus();
  }

  absl::Status Backward() override {
    const RankContext& rank = *context_->rank;
    const ConvGradient gradient = {.dy = out_.gradient,
                                   .y = out_.value,
                                   .winner = winner_.get(),
                                   .height = out_.shape.height,
                                   .width = out_.shape.width,
                                   .activation = activation_};
    cudaStream_t filter_stream = rank.main.get();
    if (in_.gradient != nullptr) {
      LENET_RETURN_IF_ERROR(context_->side->Fork());
      filter_stream = context_->side->stream();
    }
    LENET_CUDA_RETURN_IF_ERROR(rank.place, LaunchConvFilterGradient(shape_, filter_plan_, gradient, in_.value,
                                                                    partials_.get(), filter_stream));
    if (in_.gradient != nullptr) {
      LENET_CUDA_RETURN_IF_ERROR(
          rank.place, LaunchConvDataGradient(shape_, data_plan_, gradient, context_->parameter(layer_.weight),
                                             in_.gradient, rank.main.get()));
    }
    return absl::OkStatus();
  }

 private:
  NetworkContext* const context_;
  const ConvShape shape_;
  const Layer layer_;
  const Activation activation_;
  const bool pooled_;
  const Tensor in_;
  const Tensor out_;
  const TilePlan forward_plan_;
  const TilePlan data_plan_;
  const FilterPlan filter_plan_;
  DeviceArray<float> partials_;
  DeviceArray<uint8_t> winner_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Stage>> NewDirectConvStage(NetworkContext* context, const Layer& layer,
                                                          Activation activation, bool pooled, const Tensor& in,
                                                          const Tensor& out) {
  auto stage = std::make_unique<DirectConvStage>(context, layer, activation, pooled, in, out);
  LENET_RETURN_IF_ERROR(stage->Init());
  return stage;
}

}  // namespace lenet::cuda
