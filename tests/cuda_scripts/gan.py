"""A GAN in the style of DCGAN and of older code: torch.cuda.FloatTensor, ngpu, weights_init, DataParallel."""

import torch
from torch import nn

cuda = torch.cuda.is_available()
ngpu = 1
device = torch.device("cuda:0" if (torch.cuda.is_available() and ngpu > 0) else "cpu")
Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor
nz, nc = 8, 1


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        nn.init.normal_(m.weight.data, 0.0, 0.02)
    elif classname.find("BatchNorm") != -1:
        nn.init.normal_(m.weight.data, 1.0, 0.02)
        nn.init.constant_(m.bias.data, 0)


class Generator(nn.Module):
    def __init__(self, ngpu):
        super().__init__()
        self.ngpu = ngpu
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, 8, 4, 1, 0, bias=False), nn.BatchNorm2d(8), nn.ReLU(True),
            nn.ConvTranspose2d(8, nc, 4, 2, 1, bias=False), nn.Tanh(),
        )  # fmt: skip

    def forward(self, input):
        if input.is_cuda and self.ngpu > 1:
            return nn.parallel.data_parallel(self.main, input, range(self.ngpu))
        return self.main(input)


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(nc, 8, 4, 2, 1, bias=False), nn.BatchNorm2d(8), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(8, 1, 4, 1, 0, bias=False), nn.Sigmoid(),
        )  # fmt: skip

    def forward(self, input):
        return self.main(input).view(-1)


def main():
    torch.manual_seed(5)
    net_g = Generator(ngpu).to(device)
    if (device.type == "cuda") and (ngpu > 1):
        net_g = nn.DataParallel(net_g, list(range(ngpu)))
    net_g.apply(weights_init)
    net_d = nn.DataParallel(Discriminator(), device_ids=[0]).cuda() if cuda else Discriminator()
    net_d.apply(weights_init)
    criterion = nn.BCELoss()
    if cuda:
        criterion.cuda()
    fixed_noise = torch.randn(4, nz, 1, 1, device=device)
    opt_d = torch.optim.Adam(net_d.parameters(), lr=2e-3, betas=(0.5, 0.999))
    opt_g = torch.optim.Adam(net_g.parameters(), lr=2e-3, betas=(0.5, 0.999))
    for i in range(4):
        imgs = torch.rand(8, nc, 8, 8)
        real = imgs.type(Tensor)
        valid = Tensor(imgs.size(0)).fill_(1.0)
        fake = torch.full((imgs.size(0),), 0.0, device=device, dtype=real.dtype)
        assert isinstance(valid, Tensor)
        assert real.type() == ("torch.cuda.FloatTensor" if cuda else "torch.FloatTensor")

        net_d.zero_grad()
        loss_d = criterion(net_d(real), valid)
        loss_d.backward()
        noise = torch.randn(8, nz, 1, 1, device=device)
        made = net_g(noise)
        loss_f = criterion(net_d(made.detach()), fake)
        loss_f.backward()
        opt_d.step()

        net_g.zero_grad()
        loss_g = criterion(net_d(made), valid)
        loss_g.backward()
        opt_g.step()
        print(f"[{i}] Loss_D: {loss_d.item() + loss_f.item():.4f} Loss_G: {loss_g.item():.4f}")
    with torch.no_grad():
        image = net_g(fixed_noise).detach().cpu().numpy()
    assert image.shape == (4, nc, 8, 8)
    print("device", made.device, "memory", torch.cuda.memory_allocated() > 0 if cuda else None)


if __name__ == "__main__":
    main()
