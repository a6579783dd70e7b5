#include "launcher/process/cores.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hwloc.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>

namespace hvd::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using CpuList = std::vector<int>;

/// The topology that hwloc reports for a synthetic machine or for this one.
class Machine {
 public:
  explicit Machine(const char* made_up = nullptr) {
    hwloc_topology_init(&topology_);
    if (made_up != nullptr) {
      EXPECT_EQ(hwloc_topology_set_synthetic(topology_, made_up), 0);
    }
    EXPECT_EQ(hwloc_topology_load(topology_), 0);
  }
  Machine(const Machine&) = delete;
  Machine& operator=(const Machine&) = delete;
  ~Machine() { hwloc_topology_destroy(topology_); }

  /// In the machine's order.
  std::vector<CpuList> all(hwloc_obj_type_t type) const {
    std::vector<CpuList> result;
    hwloc_obj_t object = nullptr;
    while ((object = hwloc_get_next_obj_by_type(topology_, type, object)) != nullptr) {
      CpuList& cpus = result.emplace_back();
      for (int cpu = hwloc_bitmap_first(object->cpuset); cpu >= 0;
           cpu = hwloc_bitmap_next(object->cpuset, cpu))
        cpus.push_back(cpu);
    }
    return result;
  }

 private:
  hwloc_topology_t topology_ = nullptr;
};

/// The kernel's files of an imaginary machine.
class Tree {
 public:
  Tree() {
    std::string name = ::testing::TempDir() + "coresXXXXXX";  // mkdtemp replaces the X
    root_ = mkdtemp(name.data());
  }
  explicit Tree(const Machine& machine) : Tree() {
    const std::string system = "/sys/devices/system/";
    lists(machine.all(HWLOC_OBJ_CORE), "topology/core_cpus_list");
    lists(machine.all(HWLOC_OBJ_PACKAGE), "topology/package_cpus_list");
    lists(machine.all(HWLOC_OBJ_L3CACHE), "cache/index3/shared_cpu_list");
    const auto nodes = machine.all(HWLOC_OBJ_NUMANODE);
    CpuList online(nodes.size());
    std::iota(online.begin(), online.end(), 0);
    write(system + "node/online", cpus_text(online));
    for (size_t node = 0; node < nodes.size(); ++node)
      write(system + "node/node" + std::to_string(node) + "/cpulist", cpus_text(nodes[node]));
  }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;
  ~Tree() { std::filesystem::remove_all(root_); }

  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << '\n';
  }
  Cores read(const CpuList& allowed) const { return read_cores(allowed, root_); }

 private:
  void lists(const std::vector<CpuList>& sets, const std::string& file) {
    for (const CpuList& set : sets)
      for (const int cpu : set)
        write("/sys/devices/system/cpu/cpu" + std::to_string(cpu) + "/" + file, cpus_text(set));
  }

  std::string root_;
};

CpuList first(int count) {
  CpuList cpus(static_cast<size_t>(count));
  std::iota(cpus.begin(), cpus.end(), 0);
  return cpus;
}

std::vector<CpuList> cpus_of(const Cores& cores) {
  std::vector<CpuList> result;
  for (const Core& core : cores.list) result.push_back(core.cpus);
  return result;
}

TEST(Cores, AreThoseOfHwlocInItsOrder) {
  for (const char* text : {"pack:2 core:8 pu:2", "pack:1 core:6 pu:1", "core:3 pu:4",
                           // nodes within packages, caches within nodes; numbered as Linux does
                           "pack:2 numa:2 l3:2 core:2 pu:2(indexes=16*2:1*16)",
                           // neighbours in number are in different packages
                           "pack:2 l3:1 core:4 pu:2(indexes=2*4:8*2:1*2)"}) {
    const Machine machine(text);
    const Tree tree(machine);
    const auto expected = machine.all(HWLOC_OBJ_CORE);
    const int count = static_cast<int>(machine.all(HWLOC_OBJ_PU).size());
    EXPECT_EQ(cpus_of(tree.read(first(count))), expected) << text;
  }
}

TEST(Cores, OfThisMachineAreThoseThatHwlocFinds) {
  const CpuList allowed = allowed_cpus();
  std::vector<CpuList> expected;
  for (const CpuList& core : Machine().all(HWLOC_OBJ_CORE)) {
    CpuList& cpus = expected.emplace_back();
    std::ranges::set_intersection(core, allowed, std::back_inserter(cpus));
    if (cpus.empty()) expected.pop_back();
  }
  EXPECT_THAT(cpus_of(read_cores(allowed, "")), ::testing::UnorderedElementsAreArray(expected));
}

TEST(Cores, KnowWhatTheyArePartOf) {
  const Tree tree(Machine("pack:2 numa:1 l3:2 core:1 pu:2"));
  EXPECT_THAT(tree.read(first(8)).list, ElementsAre(Core{0, 0, 0, {0, 1}}, Core{0, 0, 2, {2, 3}},
                                                    Core{4, 4, 4, {4, 5}}, Core{4, 4, 6, {6, 7}}));
}

TEST(Cores, AreOnlyWhatIsAllowedOfThem) {
  const Tree tree(Machine("pack:2 core:2 pu:2"));
  EXPECT_THAT(cpus_of(tree.read({1, 4, 5, 6})),
              ElementsAre(ElementsAre(1), ElementsAre(4, 5), ElementsAre(6)));
}

TEST(Cores, OfAnOlderKernelHaveOtherFiles) {
  Tree tree;
  const std::string cpus = "/sys/devices/system/cpu/cpu";
  for (const char* cpu : {"0", "2"})
    tree.write(cpus + cpu + "/topology/thread_siblings_list", "0,2");
  for (const char* cpu : {"1", "3"})
    tree.write(cpus + cpu + "/topology/thread_siblings_list", "1,3");
  tree.write(cpus + "0/topology/core_siblings_list", "0-3");
  tree.write(cpus + "1/topology/core_siblings_list", "0-3");
  EXPECT_THAT(tree.read(first(4)).list, ElementsAre(Core{.cpus = {0, 2}}, Core{.cpus = {1, 3}}));
}

TEST(Cores, OfAKernelThatTellsNothingAreItsCpus) {
  EXPECT_THAT(cpus_of(Tree().read({0, 3})), ElementsAre(ElementsAre(0), ElementsAre(3)));
}

TEST(Quota, IsTheLeastOfAGroupAndThoseAbove) {
  Tree tree;
  tree.write("/proc/self/cgroup", "0::/a/b");
  EXPECT_EQ(tree.read({0}).quota, std::nullopt);
  tree.write("/sys/fs/cgroup/a/b/cpu.max", "max 100000");
  EXPECT_EQ(tree.read({0}).quota, std::nullopt);
  tree.write("/sys/fs/cgroup/a/cpu.max", "250000 100000");
  EXPECT_EQ(tree.read({0}).quota, 2.5);
  tree.write("/sys/fs/cgroup/a/b/cpu.max", "400000 100000");
  EXPECT_EQ(tree.read({0}).quota, 2.5);
}

TEST(Quota, IsReadFromTheFirstVersionOfCgroupsToo) {
  Tree tree;
  tree.write("/proc/self/cgroup", "5:cpuset:/x\n4:cpu,cpuacct:/of/the/host\n0::/");
  tree.write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "50000");
  tree.write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(tree.read({0}).quota, std::nullopt);
  tree.write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us",
             "200000");  // a container sees its own group as the root
  EXPECT_EQ(tree.read({0}).quota, 4.0);
}

TEST(Quota, IsTheLeastOfBothVersions) {
  Tree tree;
  tree.write("/proc/self/cgroup", "4:cpu:/a\n0::/b");
  tree.write("/sys/fs/cgroup/cpu/a/cpu.cfs_quota_us", "400000");
  tree.write("/sys/fs/cgroup/cpu/a/cpu.cfs_period_us", "100000");
  tree.write("/sys/fs/cgroup/b/cpu.max", "300000 100000");
  EXPECT_EQ(tree.read({0}).quota, 3.0);
}

TEST(Cpus, AreReadAsTheKernelWritesThem) {
  EXPECT_THAT(parse_cpus("0-2,8,10-11\n"), ElementsAre(0, 1, 2, 8, 10, 11));
  EXPECT_THAT(parse_cpus(""), IsEmpty());
  for (const char* bad : {"\n", "x", "-1", "0-", "4000000000", "0-99999999", "-"})
    EXPECT_THAT(parse_cpus(bad), IsEmpty()) << bad;
  EXPECT_THAT(parse_cpus("3,x"), ElementsAre(3));
}

TEST(Cpus, AreWrittenAsTheKernelDoes) {
  EXPECT_EQ(cpus_text({0, 1, 2, 8, 10, 11}), "0-2,8,10-11");
  EXPECT_EQ(cpus_text({5}), "5");
  EXPECT_EQ(cpus_text({}), "");
}

}  // namespace
}  // namespace hvd::launcher
